# `just` lists these. Each calls what the README names; nothing here is needed to build, run or test.

# List the recipes.
default:
    @just --list

# Run every check that a change must pass: `just check --long` runs all tests in full.
check *arguments:
    ./check {{ arguments }}

# The whole story against a fresh sandbox, with a closing table.
demo *arguments:
    cargo run --release -- demo {{ arguments }}

# The whole system in one process, no configuration.
sandbox *arguments:
    cargo run --release -- sandbox {{ arguments }}

# Compile the contracts into contracts/artifacts.
contracts:
    node contracts/build.mjs

# Payments at a steady rate against a fresh sandbox, each compared in the end: see docs/src/load-test.md.
load *arguments:
    cargo run --release -- load {{ arguments }}

# This project's figures, each beside its goal: see docs/src/develop/bench.md. Run nothing else at the same time.
bench *arguments:
    cargo run --release -- bench {{ arguments }}

# Figures of the in-process chain alone, from a release build.
bench-chain:
    cargo run --release -p payferry-devchain --example throughput

# The files of a release in target/release-files: archive, Debian package, SBOM, checksums.
release *arguments:
    packaging/release {{ arguments }}
