#!/usr/bin/env node
// Keeps retired words out of comments, docs, messages, pages and names, and commit subjects within 72 characters.
//
//   node tests/prose.mjs             list every finding; exit code 1 if there is one
//   node tests/prose.mjs --counts    count findings by folder and rule; exit code 0
//   node tests/prose.mjs PATH...     only these files and folders, no commits
//
// Checks comments (Rust, Solidity, JavaScript, TypeScript, CSS, TOML, shell, Python), Markdown outside of code, string literals of
// Rust that have a space (messages, pages), and names that Rust code declares. Inline code in backticks and SQL are not checked: stored and
// public names may contain retired words.
//
// A rule is for a word that has a better one in every context. An ordinary use of such a word is allowed by `ORDINARY`, by a
// phrase as it stands in the text; one place is allowed by `PLACES`.
import { execFileSync } from "node:child_process";
import { readFileSync, readdirSync, statSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = join(dirname(fileURLToPath(import.meta.url)), "..");
const SUBJECT_LENGTH_MAX = 72;
// Subjects up to this commit are older than the rule.
const SUBJECTS_AFTER = "7996220";

// Retired words in text: a pattern (any case), and what to write instead.
const WORDS = [
  [/\b(take|takes|took|taken|taking|takes it|take it|took it|take them|takes them) back\b/, "reorged, orphaned, reverted, undone"],
  [/\b(tell|tells|told|telling)\b/, "notify, publish, report, say"],
  [/\bgates?\b/, "precondition, check"],
  [/\bsendings\b|\b(a|an|the|each|every|one|any|this|that|no|its|another|such a) sending(?=[.,;:)]|$| (is|was|has|had|that|which|and|or|can|cannot|must|may|fails?|failed|waits?)\b)/, "outbound transfer"],
  [/\bsecond looks?\b/, "rescan"],
  [/\busurp(s|ed|er|ers|ing)?\b/, "nonce taken"],
  [/\b(keeps?|kept|keeping) (the |its |their )?books\b|\bbooks\b/, "metrics, ledger"],
  [/\bdesks?\b/, "queue, service"],
  [/\bcrowds?\b/, "many payments, load"],
  [/\bin vain\b/, "timed out, without success"],
  [/\bstuck\b/, "needs attention"],
  [/\btroubled\b/, "degraded"],
  [/\b(whoever|whosoever|whatever's|somebody|someone|nobody|no one|everybody|everyone|anybody)\b/, "a concrete subject"],
  [/\bby heart\b|\bferrym[ae]n\b|\bferried\b|\beyes on\b|\bvisitors?\b|\bmends?\b|\bmended\b/, "the standard term"],
  [/\bpassed away\b|\bof its own accord\b|\bgoes astray\b|\bmoments? of weakness\b/, "the standard term"],
];
// In files of the journal only.
const JOURNAL_WORDS = [
  [/\b(a|the|each|every|this|that|its|one|typed|same|bad) units?\b|\bunits? (that|of (a|the) group|in (a|the) group)\b|^\W*units of a group/, "write"],
];
// At the start of a sentence in a comment: it is the subject there. A question may begin so.
const FIRST_WORDS = [/^(What|Whose|Whoever)\b(?![^.]*\?)/, "a noun phrase or a third-person verb"];
// Words of names that Rust code declares, in snake case: of every name, and of types and modules only.
const NAMES = [[/(^|_)(desk|crowd|usurp\w*|ferried|ferryman|sendings?|taken_back|in_vain|visitors?|books|told|untold|take_in|taken_in)(_|$)/, "the glossary's name"]];
const TYPE_NAMES = [
  [/(^|_)(asked|shown|standing|trouble|stuck)$/, "…Request, …View, …Position"],
  [/^(world|ground|life|look|place)$/, "Env, Fixture, Lifecycle, …View, …Position"],
];
// Ordinary uses, removed before the rules for words are applied.
const ORDINARY = [
  /\btell (them|it|these|those|[a-z]+s) apart\b/, /\btell apart\b/, /\btell whether\b/, /\bfeature[- ]gates?\b/, /\bmdbook\b/, /\border books?\b/, /\bharbour books\b/,
  /\b(base|smallest|token) units?\b/, /\bunits? of (measure|work|time)\b/, /\bthe unit of the\b/, /\bunit tests?\b/, /\bsystemd units?\b/,
];
// Findings that stay: a path or a folder, and the word.
const PLACES = [
  // Names of tables.
  ["entities/src/", "sendings"],
  ["entities/src/", "sending_transitions"],
  // The name of a schema of the OpenAPI document, and a module that names snapshots.
  ["src/http/money/", "SendingRecord"],
  ["tests/it/operator/mod.rs", "sendings"],
  // Those of an accountant.
  ["docs/src/guides/", "books"],
  ["docs/src/SUMMARY.md", "books"],
];

const SKIPPED = /(^|\/)(\.git|target|node_modules|dist|\.tools|artifacts|snapshots|screenshots|payferry-data)(\/|$)|^tests\/prose\.mjs$|^clients\/typescript\/src\/schema\.ts$/;
const SHELL = /^(check|justfile|\.ci\/run|clients\/generate|tests\/(with-postgres|tools|prose|guides))$|\.(sh|toml|py)$/;

/** Every file below a folder, by its path from the root. */
function* files(path) {
  const name = relative(ROOT, path);
  if (SKIPPED.test(name)) return;
  if (!statSync(path).isDirectory()) {
    yield name;
    return;
  }
  for (const entry of readdirSync(path).sort()) yield* files(join(path, entry));
}

const blank = (text) => text.replace(/[^\n]/g, " ");

/** Splits source into pieces of comment and of string, in order, and what is left as code. */
function pieces(source, syntax) {
  const found = [];
  let code = "";
  const pattern = {
    rust: /\/\/[^\n]*|\/\*[^]*?\*\/|b?r(#*)"[^]*?"\1|b?"(?:[^"\\]|\\[^])*"|'(?:[^'\\\n]|\\[^'\n]*)'|'\w+/g,
    c: /\/\/[^\n]*|\/\*[^]*?\*\/|"(?:[^"\\\n]|\\[^])*"|'(?:[^'\\\n]|\\[^])*'|`(?:[^`\\]|\\[^])*`/g,
    shell: /(?<![^\s])#[^\n]*|"(?:[^"\\]|\\[^])*"|'[^']*'/g,
  }[syntax];
  let end = 0;
  for (const match of source.matchAll(pattern)) {
    code += source.slice(end, match.index);
    const text = match[0];
    code += blank(text);
    end = match.index + text.length;
    const isComment = syntax === "shell" ? text[0] === "#" : /^\/[/*]/.test(text);
    if (isComment) found.push({ at: match.index, text, kind: "comment" });
    else if (syntax === "rust" && text.includes('"')) found.push({ at: match.index, text, kind: "text" });
  }
  return { found, code: code + source.slice(end) };
}

/** Pieces of comment that follow each other as one text, so that a phrase may go over the end of a line. */
function paragraphs(source, found) {
  const joined = [];
  for (const piece of found) {
    const last = joined.at(-1);
    const between = last && source.slice(last.end, piece.at);
    const isNext = last?.kind === "comment" && piece.kind === "comment" && /^\n[ \t]*$/.test(between);
    // Markers are blanked, so that places stay what they are.
    const text = piece.kind === "comment" ? piece.text.replace(/^(\/\/[/!]?|\/\*+!?|#+!?)|^[ \t]*\*+\/?|\*\/$/gm, blank) : piece.text;
    if (isNext && text.trim() !== "") {
      last.text += between + text;
      last.end = piece.at + piece.text.length;
    } else joined.push({ ...piece, text, end: piece.at + piece.text.length });
  }
  return joined;
}

const SQL = /\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|CREATE (TABLE|INDEX|TRIGGER|UNIQUE)|ALTER TABLE|VALUES|WHERE|ORDER BY)\b/;

/** Findings in text: its place, the word, and what to write instead. */
function inText(text, isJournal, isComment) {
  let plain = text.replace(/`[^`]*`|\]\([^)]*\)|https?:\/\/\S+|\{[^{}]*\}/g, blank);
  for (const ordinary of ORDINARY) plain = plain.replace(new RegExp(ordinary.source.replaceAll(" ", "\\s+"), "gi"), blank);
  const found = [];
  for (const [pattern, instead] of [...WORDS, ...(isJournal ? JOURNAL_WORDS : [])]) {
    const flexible = new RegExp(pattern.source.replaceAll(" ", "\\s+"), "gi");
    for (const match of plain.matchAll(flexible)) found.push({ at: match.index, word: match[0], instead });
  }
  if (isComment) {
    const [pattern, instead] = FIRST_WORDS;
    for (const match of plain.matchAll(/(?<=^\s*|[.:!] +|\n\s*\n\s*|\n\s*[-*] )[A-Z][^\n]*/g)) {
      const first = pattern.exec(match[0]);
      if (first) found.push({ at: match.index, word: first[1], instead });
    }
  }
  return found;
}

function inNames(code) {
  const found = [];
  for (const match of code.matchAll(/\b(struct|enum|trait|union|type|mod|fn|const|static)\s+([A-Za-z_]\w*)/g)) {
    const name = match[2].replace(/([a-z0-9])([A-Z])/g, "$1_$2").toLowerCase();
    const isType = !/fn|const|static/.test(match[1]);
    for (const [pattern, instead] of [...NAMES, ...(isType ? TYPE_NAMES : [])]) {
      if (pattern.test(name)) found.push({ at: match.index, word: match[2], instead });
    }
  }
  return found;
}

function inFile(name) {
  const syntax = name.endsWith(".rs") ? "rust" : /\.(sol|m?js|ts|css)$/.test(name) ? "c" : SHELL.test(name) ? "shell" : null;
  const isMarkdown = name.endsWith(".md");
  if (!syntax && !isMarkdown) return [];
  const source = readFileSync(join(ROOT, name), "utf8");
  const isJournal = /(^|\/)journal(\/|\.rs$)/.test(name);
  let found = [];
  if (isMarkdown) {
    const prose = source.replace(/^```[^]*?^```/gm, blank);
    found = inText(prose, isJournal, false);
  } else {
    const split = pieces(source, syntax);
    for (const piece of paragraphs(source, split.found)) {
      if (piece.kind === "text" && (!/[a-z] [a-z]/i.test(piece.text) || SQL.test(piece.text))) continue;
      const isComment = piece.kind === "comment";
      found.push(...inText(piece.text, isJournal, isComment).map((one) => ({ ...one, at: one.at + piece.at })));
    }
    if (syntax === "rust") found.push(...inNames(split.code));
  }
  const line = (at) => source.slice(0, at).split("\n").length;
  return found
    .filter(({ word }) => !PLACES.some(([path, allowed]) => name.startsWith(path) && allowed.toLowerCase() === word.toLowerCase()))
    .map(({ at, word, instead }) => ({ file: name, line: line(at), word: word.replace(/\s+/g, " "), instead }))
    .sort((a, b) => a.line - b.line);
}

/** Subjects that are too long; none where the history is not there. */
function subjects() {
  const git = (...args) => execFileSync("git", args, { cwd: ROOT, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
  try {
    git("merge-base", "--is-ancestor", SUBJECTS_AFTER, "HEAD");
    const log = git("log", "--no-merges", "--format=%h %s", `${SUBJECTS_AFTER}..HEAD`);
    return log.split("\n").filter((line) => line.slice(line.indexOf(" ") + 1).length > SUBJECT_LENGTH_MAX);
  } catch {
    console.log(`commit subjects were not checked: git does not have the history since ${SUBJECTS_AFTER} here`);
    return [];
  }
}

const options = process.argv.slice(2);
const isCounts = options.includes("--counts");
const paths = options.filter((option) => !option.startsWith("--"));
const from = paths.length ? paths.map((path) => join(process.cwd(), path)) : [ROOT];
const findings = from.flatMap((path) => [...files(path)]).flatMap(inFile);
const long = paths.length ? [] : subjects();

if (isCounts) {
  const table = new Map();
  const count = (folder, word) => {
    const row = table.get(folder) ?? new Map();
    row.set(word, (row.get(word) ?? 0) + 1);
    table.set(folder, row);
  };
  for (const { file, word } of findings) count(file.split("/").slice(0, file.startsWith("crates/") ? 2 : 1).join("/"), word.toLowerCase());
  for (const [folder, row] of [...table].sort()) {
    const words = [...row].sort((a, b) => b[1] - a[1]).map(([word, number]) => `${word} ${number}`);
    console.log(`${String([...row.values()].reduce((a, b) => a + b)).padStart(5)}  ${folder}: ${words.join(", ")}`);
  }
} else {
  for (const { file, line, word, instead } of findings) console.log(`${file}:${line}: "${word}": write ${instead}`);
}
for (const subject of long) console.log(`commit subject over ${SUBJECT_LENGTH_MAX} characters: ${subject}`);
if (findings.length || long.length) {
  console.log(`${findings.length} retired words, ${long.length} long commit subjects`);
  process.exitCode = isCounts ? 0 : 1;
}
