#!/usr/bin/env node
// The npm compiler behind the command line that forge and py-solc-x expect of a native solc:
// `--version`, and `--standard-json` on stdin (or from a named file) with nothing but the JSON on stdout.
const fs = require("fs");
const path = require("path");

const FLAGS_WITH_VALUE = new Map([
  ["--base-path", "base"],
  ["--include-path", "include"],
  ["-I", "include"],
  ["--allow-paths", "allow"],
]);

function fail(message) {
  console.error(`solc-shim: ${message}`);
  process.exit(1);
}

function parse(argv) {
  const options = { mode: null, file: null, base: null, include: [], allow: [] };
  for (let i = 0; i < argv.length; i += 1) {
    const equals = argv[i].startsWith("--") ? argv[i].indexOf("=") : -1;
    const name = equals < 0 ? argv[i] : argv[i].slice(0, equals);
    if (name === "--version" || name === "--standard-json") {
      options.mode ??= name;
    } else if (FLAGS_WITH_VALUE.has(name)) {
      const value = equals < 0 ? argv[(i += 1)] : argv[i].slice(equals + 1);
      if (value === undefined) fail(`${name} needs a value`);
      const key = FLAGS_WITH_VALUE.get(name);
      if (key === "base") options.base = value;
      else if (key === "include") options.include.push(value);
      else options.allow.push(...value.split(",").filter(Boolean));
    } else if (!name.startsWith("-") && options.file === null) {
      options.file = name;
    } else if (name !== "-") {
      fail(`unknown argument ${argv[i]}; only --version and --standard-json are supported`);
    }
  }
  return options;
}

// Sources come inline; what is imported beyond them is read from the base and include paths and, as with the native
// compiler, only from below one of the named folders.
function importer(options) {
  const roots = [options.base ?? ".", ...options.include].map((root) => path.resolve(root));
  const allowed = [...roots, ...options.allow.map((root) => path.resolve(root))];
  const isAllowed = (file) => allowed.some((root) => file === root || file.startsWith(path.join(root, path.sep)));
  return (name) => {
    for (const root of roots) {
      const file = path.resolve(root, name);
      if (!fs.existsSync(file)) continue;
      if (!isAllowed(fs.realpathSync(file))) return { error: `File outside of allowed directories: ${name}` };
      return { contents: fs.readFileSync(file, "utf8") };
    }
    return { error: `File not found: ${name}` };
  };
}

// A pipe takes less than a large output in one write, and process.exit would drop the rest.
function writeAll(text) {
  const bytes = Buffer.from(text);
  for (let offset = 0; offset < bytes.length; ) {
    try {
      offset += fs.writeSync(1, bytes, offset);
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
    }
  }
}

const options = parse(process.argv.slice(2));
if (options.mode === null) fail("only --version and --standard-json are supported");

let solc;
try {
  solc = require("solc");
} catch (error) {
  fail(`the npm package solc is not installed (npm ci): ${error.message}`);
}

if (options.mode === "--version") {
  const version = solc.version().replace(/\.Emscripten\.clang$/, ".Linux.g++");
  writeAll(`solc, the solidity compiler commandline interface\nVersion: ${version}\n`);
} else {
  const input = fs.readFileSync(options.file ?? 0, "utf8");
  writeAll(solc.compile(input, { import: importer(options) }));
}
