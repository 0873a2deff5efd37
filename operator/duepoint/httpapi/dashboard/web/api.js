// Requests to the API, with the token of the person who looks at the page.
//
// The token is kept for this tab only (sessionStorage) and goes nowhere but to the server that the
// page comes from. Without one the request goes out bare: a proxy in front may add its own.

const ROOT = new URL("../v1/", document.baseURI);
const KEY = "duepoint-token";
const PATIENCE_SECONDS = 15; // a server behind this one may be away, and an empty page says nothing

let token = sessionStorage.getItem(KEY) ?? "";
let onSignedOut = () => {};

export class Problem extends Error {
  constructor(status, code, detail) {
    super(detail || code || `HTTP ${status}`);
    this.status = status;
    this.code = code;
  }
}

// `duepoint dashboard` hands a token over behind the #, which no server sees.
const handed = /^#token=(.+)$/.exec(location.hash);
if (handed) {
  token = decodeURIComponent(handed[1]);
  sessionStorage.setItem(KEY, token);
  history.replaceState(null, "", "#/schedules");
}

export function hasToken() {
  return token !== "";
}

export function signIn(text) {
  token = text.trim().replace(/^Bearer\s+/i, "");
  sessionStorage.setItem(KEY, token);
}

export function signOut() {
  token = "";
  sessionStorage.removeItem(KEY);
}

// Called where the server does not take the token (any more).
export function whenSignedOut(action) {
  onSignedOut = action;
}

export function get(path, parameters, signal, patience = PATIENCE_SECONDS) {
  return request("GET", path, parameters, undefined, signal, patience);
}

export function post(path, body) {
  return request("POST", path, undefined, body ?? {});
}

// A path of names that may hold anything.
export function pathOf(...parts) {
  return parts.map(encodeURIComponent).join("/").replaceAll("%3A", ":");
}

async function request(method, path, parameters, body, signal, patience = 60) {
  const url = new URL(path, ROOT);
  for (const [name, value] of Object.entries(parameters ?? {})) {
    if (value !== "" && value !== null && value !== undefined) url.searchParams.set(name, value);
  }
  const headers = { Accept: "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const tooLong = AbortSignal.timeout(patience * 1000);
  let response;
  let answer;
  try {
    response = await fetch(url, {
      method,
      headers,
      signal: signal ? AbortSignal.any([signal, tooLong]) : tooLong,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin", // a proxy that signs people in knows them by its cookie
      redirect: "error", // a proxy whose session has ended leads to its own page
    });
    answer = await response.text();
  } catch (error) {
    if (tooLong.aborted) {
      throw new Problem(0, "Unreachable", `no answer within ${patience} s; the dashboard's server, or the Kubernetes API server behind it, is away or slow`);
    }
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "Unreachable", "the dashboard's server does not answer");
  }
  if (response.ok) return JSON.parse(answer);
  const problem = problemOf(answer);
  if (response.status === 401) onSignedOut(problem.detail ?? "");
  throw new Problem(response.status, problem.code ?? "", problem.detail ?? "");
}

// What a proxy in front answers may be no JSON.
function problemOf(text) {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}

// Pages of a list in turn, each as soon as it is there: `onPage(items, isLast)`.
export async function pages(path, parameters, onPage, signal) {
  let cursor = "";
  do {
    const page = await get(path, { ...parameters, cursor }, signal);
    cursor = page.next;
    onPage(page.items, cursor === "");
  } while (cursor);
}
