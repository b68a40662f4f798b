// Before anything is drawn: the theme the user has chosen, if any. Without a choice the system's counts.
"use strict";
try {
  const chosen = localStorage.getItem("convoke-theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage may be forbidden; then the system's theme it is.
}
