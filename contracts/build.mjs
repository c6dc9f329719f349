#!/usr/bin/env node
// Compiles the contracts into artifacts/, which are committed so that a Rust build needs no Solidity compiler.
//
//   node contracts/build.mjs           writes the artifacts
//   node contracts/build.mjs --check   fails if the committed artifacts do not match the sources
//
// The compiler is the npm package `solc`, pinned in package-lock.json and installed into contracts/node_modules
// if necessary. The output depends on nothing else: no metadata hash, no paths, no time.

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const require = createRequire(import.meta.url);
const contracts = ["Payferry", "Vault", "TestUSDC", "TestUSDT", "Multicall3"];
// Imported files without artifacts.
const parts = ["Access", "Erc3009", "SafeToken"];
// Misbehaving tokens and wallets, in a separate folder, so that they are not deployed by accident.
const tests = ["HostileToken", "SmartWallet"];

const settings = {
  // A high number of runs, because call gas matters; deployment is paid only once per chain.
  optimizer: { enabled: true, runs: 1_000_000 },
  viaIR: true,
  // The newest version that Base, Polygon and Arbitrum all support; the contracts need at least PUSH0 (Shanghai).
  evmVersion: "cancun",
  metadata: { bytecodeHash: "none", appendCBOR: false },
  outputSelection: { "*": { "*": ["abi", "evm.bytecode.object", "evm.deployedBytecode.object"] } },
};

const check = process.argv.includes("--check");
const wanted = JSON.parse(readFileSync(join(here, "package.json"))).devDependencies.solc;

function installedVersion() {
  const file = join(here, "node_modules/solc/package.json");
  return existsSync(file) ? JSON.parse(readFileSync(file)).version : undefined;
}

if (installedVersion() !== wanted) {
  console.error(`installing solc ${wanted} from npm into contracts/node_modules`);
  execFileSync("npm", ["ci", "--no-audit", "--no-fund"], { cwd: here, stdio: ["ignore", 2, 2] });
}
const solc = require("solc");

const read = (folder, names) =>
  names.map((name) => [`${name}.sol`, { content: readFileSync(join(here, folder, `${name}.sol`), "utf8") }]);
const input = {
  language: "Solidity",
  sources: Object.fromEntries([...read("sol", [...contracts, ...parts]), ...read("sol/test", tests)]),
  settings,
};
const output = JSON.parse(solc.compile(JSON.stringify(input)));
for (const problem of output.errors ?? []) console.error(problem.formattedMessage);
if ((output.errors ?? []).length > 0) process.exit(1);

let stale = 0;
const { outputSelection, ...reportedSettings } = settings;
for (const [folder, names] of [["artifacts", contracts], ["artifacts/test", tests]]) {
  mkdirSync(join(here, folder), { recursive: true });
  for (const name of names) {
    const { abi, evm } = output.contracts[`${name}.sol`][name];
    const artifact = {
      contractName: name,
      solc: solc.version(),
      settings: reportedSettings,
      abi,
      bytecode: `0x${evm.bytecode.object}`,
      deployedBytecode: `0x${evm.deployedBytecode.object}`,
    };
    const text = `${JSON.stringify(artifact, null, 2)}\n`;
    const file = join(here, folder, `${name}.json`);
    if (!check) {
      writeFileSync(file, text);
      console.log(`${folder}/${name}.json: ${evm.deployedBytecode.object.length / 2} bytes of code`);
    } else if (!existsSync(file) || readFileSync(file, "utf8") !== text) {
      console.error(`${folder}/${name}.json does not match the sources; run node contracts/build.mjs`);
      stale += 1;
    }
  }
  const extra = readdirSync(join(here, folder)).filter((f) => f.endsWith(".json") && !names.includes(f.slice(0, -5)));
  for (const file of extra) {
    console.error(`${folder}/${file} has no source`);
    stale += 1;
  }
}
if (check && stale === 0) console.log(`artifacts match the sources (solc ${solc.version()})`);
process.exit(stale === 0 ? 0 : 1);
