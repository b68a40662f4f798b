// Applies the chosen theme before the first paint. Without a choice the theme of the system applies.
"use strict";
try {
  const chosen = localStorage.getItem("convoke-theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage may be disabled; then the theme of the system applies.
}
