// The dashboard: who looks at it, and which page.

import { get, hasToken, signIn, signOut, whenSignedOut } from "./api.js";
import { h, replace } from "./dom.js";
import { forecastPage } from "./forecast.js";
import { lettersPage } from "./letters.js";
import { overview } from "./overview.js";
import { queuePage } from "./queue.js";
import { schedulePage } from "./schedule.js";
import { setPage } from "./set.js";

const PAGES = [
  { name: "schedules", title: "Schedules", open: (parts, query, session) => overview("schedules", query, session) },
  { name: "sets", title: "Sets", open: (parts, query, session) => overview("sets", query, session) },
  { name: "queue", title: "Queue", open: queuePage },
  { name: "forecast", title: "Forecast", open: forecastPage },
  { name: "deadletters", title: "Dead letters", open: lettersPage },
  { name: "schedule", of: "schedules", open: schedulePage },
  { name: "set", of: "sets", open: setPage },
];

const ASK_AGAIN_MILLISECONDS = 5_000;

const main = document.getElementById("page");
const nav = document.getElementById("nav");
const corner = document.getElementById("session");

let session = null;
let page = null;
let shownName = "";
let again = 0; // the timer of the next question who it is
let theme = localStorage.getItem("duepoint-theme") ?? "";

function applyTheme() {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

function isDark() {
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function switchTheme() {
  theme = isDark() ? "light" : "dark";
  localStorage.setItem("duepoint-theme", theme);
  applyTheme();
  drawCorner();
}

function drawCorner() {
  replace(
    corner,
    session ? h("span", { class: "user", title: session.user }, h("bdi", {}, session.user)) : null,
    h("button", { type: "button", class: "plain", onclick: switchTheme, "aria-label": isDark() ? "Light colours" : "Dark colours" }, isDark() ? "☀" : "☾"),
    session && hasToken() ? h("button", { type: "button", class: "plain", onclick: leave }, "Sign out") : null,
  );
}

function drawNav(current) {
  replace(nav, session && PAGES.filter((each) => each.title).map((each) =>
    h("a", { href: `#/${each.name}`, "aria-current": each.name === current ? "page" : null }, each.title)));
}

function close() {
  page?.close?.();
  page = null;
}

function leave() {
  signOut();
  session = null;
  close();
  askForToken("");
}

function askForToken(reason) {
  close();
  drawNav("");
  drawCorner();
  document.title = "Sign in · Duepoint";
  const field = h("input", { type: "password", id: "token", autocomplete: "off", spellcheck: "false", required: true, "aria-describedby": "token-help" });
  const form = h(
    "form", { class: "signin", onsubmit: (event) => { event.preventDefault(); signIn(field.value); begin(); } },
    h("h1", {}, "Sign in"),
    reason ? h("p", { class: "trouble", role: "alert" }, reason) : null,
    h("label", { for: "token" }, "Token of the cluster"), field,
    h("p", { id: "token-help", class: "muted" }, "For example of ", h("code", {}, "kubectl create token NAME"),
      ". You see and do here what its owner may. It is kept for this tab only."),
    h("button", { type: "submit", class: "primary" }, "Sign in"),
  );
  replace(main, form);
  field.focus();
}

async function begin(isRepeated = false) {
  clearTimeout(again);
  if (!isRepeated) replace(main, h("p", { class: "empty", role: "status" }, "Signing in…"));
  try {
    session = await get("whoami");
  } catch (error) {
    if (error.status === 401) askForToken(hasToken() ? error.message : "");
    else {
      if (main.querySelector("[role=alert]")?.textContent !== error.message) {
        replace(main, h("p", { class: "empty", role: "alert" }, error.message), h("p", { class: "empty" }, "It is asked again every few seconds. ", h("button", { type: "button", class: "primary", onclick: () => begin() }, "Try again")));
      }
      again = setTimeout(() => begin(true), ASK_AGAIN_MILLISECONDS);
    }
    return;
  }
  drawCorner();
  open();
}

function open() {
  if (!session) return;
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...parts] = path.split("/").map(decodeURIComponent);
  const found = PAGES.find((each) => each.name === name);
  if (!found) {
    location.replace("#/schedules");
    return;
  }
  // A choice on a page may draw the page anew: the focus stays on what was chosen with.
  const label = shownName === found.name ? document.activeElement?.getAttribute("aria-label") : null;
  shownName = found.name;
  close();
  page = found.open(parts, new URLSearchParams(query ?? ""), session);
  document.title = `${page.title} · Duepoint`;
  drawNav(found.of ?? name);
  replace(main, page.element);
  main.scrollTop = 0;
  ((label && main.querySelector(`[aria-label="${CSS.escape(label)}"]`)) || main).focus({ preventScroll: true });
  page.start();
}

whenSignedOut((reason) => {
  if (!session) return; // the first question asks for itself
  session = null;
  signOut();
  askForToken(reason);
});
addEventListener("hashchange", open);
addEventListener("keydown", (event) => {
  const isTyping = event.target.closest?.("input, textarea, select, dialog");
  if (!isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) page?.onKey?.(event);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawCorner);

applyTheme();
begin();
