// Elements from code. Data becomes text nodes and attributes only; nothing is ever parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

/** An HTML element: `h("a", {href, class}, "text", child)`. */
export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** An SVG element. */
export function s(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

/** Sets the text if it differs: unchanged text stays selected and is not announced again. */
export function text(element, value) {
  const wanted = String(value);
  if (element.textContent !== wanted) element.textContent = wanted;
}

export function attribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/**
 * Keeps one child per key, in order, and leaves unchanged children in place. `make(item)` builds a child,
 * `update(node, item)` refreshes it.
 */
export function keyed(parent, items, key, make, update) {
  const known = parent.keyedNodes ?? (parent.keyedNodes = new Map());
  const wanted = new Set();
  let before = parent.firstChild;
  for (const item of items) {
    const name = key(item);
    wanted.add(name);
    let node = known.get(name);
    if (!node) {
      node = make(item);
      known.set(name, node);
    }
    update?.(node, item);
    if (node === before) before = before.nextSibling;
    else parent.insertBefore(node, before);
  }
  for (const [name, node] of known) {
    if (!wanted.has(name)) {
      node.remove();
      known.delete(name);
    }
  }
}

/** Calls at most once per frame. */
export function eachFrame(draw) {
  let asked = 0;
  const later = () => {
    asked ||= requestAnimationFrame(() => {
      asked = 0;
      draw();
    });
  };
  later.cancel = () => cancelAnimationFrame(asked);
  return later;
}
