# Sourced by ./check and the scripts beside it: keeps tools and built dependencies between runs.
#
# The cache is a folder outside of the checkout: $PAYFERRY_CACHE, or $XDG_CACHE_HOME/payferry, or ~/.cache/payferry. An empty
# PAYFERRY_CACHE, or a folder that cannot be written, turns it off: tools are then kept in .tools, dependencies in target only.
#
#   tools/NAME-VERSION/     one tool
#   deps/RUST-CHECKSUM/     built dependencies as part of a target folder; the checksum covers Cargo.lock and every Cargo.toml
#
# Several runs may use it at the same time. An entry is built under a name of its own, renamed when it is complete, and never
# changed after that. Crates of this workspace are not stored: their output depends on the checkout.

# Entries of deps. They share unchanged files with each other (hard links).
CACHE_DEPS_MAX=3
# Size of deps. The entries used longest ago are removed first.
CACHE_DEPS_MIB_MAX=6144
# A tool that was not used for so long is removed.
CACHE_UNUSED_DAYS_MAX=30

# Sets cache (the folder), cache_deps (empty if dependencies are not kept) and target (where cargo builds).
cache_open() {
  target=${CARGO_TARGET_DIR:-target}
  cache=${PAYFERRY_CACHE-${XDG_CACHE_HOME:-${HOME:-}/.cache}/payferry} cache_deps=1
  if [ -z "$cache" ] || ! mkdir -p "$cache/tools" "$cache/deps" 2> /dev/null || [ ! -w "$cache/deps" ]; then
    cache=$PWD/.tools cache_deps=''
    mkdir -p "$cache/tools"
  fi
}

# Prints the name of the entry for this checkout's dependencies.
cache_deps_name() {
  local rust
  rust=$(rustc -vV | sed -n 's/^\(release\|host\): //p' | paste -sd -)
  # The order of the files does not depend on the machine's language.
  echo "$rust-$(find . \( -name target -o -name node_modules -o -name '.*' ! -name . ! -name .cargo \) -prune -o \
    \( -name Cargo.toml -o -path ./Cargo.lock -o -path ./.cargo/config.toml \) -print | LC_ALL=C sort | xargs cat \
    | cksum | tr ' ' -)"
}

# cache_lock OPTION COMMAND...: flock where it exists. Without it, an entry that is removed while it is copied costs builds.
cache_lock() {
  if command -v flock > /dev/null; then
    (flock "$1" 9; "${@:2}") 9> "$cache/lock"
  else
    "${@:2}"
  fi
}

# cache_link TARGET_FOLDER: hard links of the files named on standard input, or copies where links are not possible. Only for
# files that rustc replaces and never overwrites.
cache_link() { tr '\n' '\0' | xargs -0 -r sh -c 'cp -pl "$@" "$0" 2> /dev/null || cp -p "$@" "$0"' "$1"; }

# Fills an empty target folder from the entry for these dependencies, or from the newest entry for this version of Rust.
cache_load() {
  if [ -z "$cache_deps" ] || [ -e "$target/debug/.fingerprint" ]; then return 0; fi
  if ! cache_lock -s cache_copy; then
    echo 'the built dependencies in the cache cannot be copied, so they are built'
    rm -rf "$target/debug"
  fi
}
cache_copy() {
  local name entry newest
  name=$(cache_deps_name)
  entry=$cache/deps/$name
  if [ ! -d "$entry" ]; then
    newest=$(ls -t "$cache/deps" | grep -F "${name%-*-*}-" | head -n 1 || true)
    if [ -z "$newest" ]; then echo 'no built dependencies are in the cache'; return 0; fi
    entry=$cache/deps/$newest
  fi
  touch "$entry"
  mkdir -p "$target/debug/deps" \
    && find "$entry/debug/deps" -type f | cache_link "$target/debug/deps" \
    && cp -Rp "$entry/debug/build" "$entry/debug/.fingerprint" "$target/debug/" || return 1
  echo "built dependencies from $entry"
}

# cache_save COMMAND...: stores the dependencies of this checkout's build. The command prints the messages of cargo's
# --message-format=json, which name the files that are in use; files that an earlier build left are not stored.
cache_save() {
  if [ -z "$cache_deps" ]; then return 0; fi
  local name new
  name=$(cache_deps_name)
  if [ -d "$cache/deps/$name" ]; then return 0; fi
  new=$(mktemp -d "$cache/deps/.new.XXXXXX")
  # Another run may have been faster.
  if ! cache_fill "$new" "$@" || [ -d "$cache/deps/$name" ] || ! mv "$new" "$cache/deps/$name"; then
    rm -rf "$new"
    echo 'built dependencies were not stored in the cache'
  fi
  cache_lock -x cache_prune "$name"
}
cache_fill() {
  local new=$1 kind folder
  mkdir -p "$new/debug/deps" "$new/debug/build" "$new/debug/.fingerprint"
  # As paths in target/debug. Every crate of this workspace has a name that begins with `payferry`.
  "${@:2}" | grep -o '/debug/\(deps\|build\)/[^"]*' | sed 's,^/debug/,,' | grep -v '^[a-z]*/\(lib\)\?payferry' | sort -u > "$new/files"
  grep '^deps/[^/]*\.\(rlib\|rmeta\|so\|dylib\)$' "$new/files" | sed "s,^,$target/debug/," | cache_link "$new/debug/deps" || return 1
  # Names end in the hash of their unit. A build script has one folder for its program and one for its output.
  sed -n 's,^deps/.*-\([0-9a-f]\{16\}\)\.[a-z]*$,\1,p; s,^build/[^/]*-\([0-9a-f]\{16\}\)/.*,\1,p' "$new/files" \
    | sort -u > "$new/hashes"
  for kind in build .fingerprint; do
    for folder in "$target/debug/$kind"/*; do
      if [[ ${folder##*/} != payferry* ]] && grep -qxF -e "${folder##*-}" "$new/hashes"; then
        cp -Rp "$folder" "$new/debug/$kind/" || return 1
      fi
    done
  done
  rm "$new/files" "$new/hashes"
}

# cache_prune NAME: removes entries for other versions of Rust, and what is beyond the limits, but never entry NAME.
cache_prune() {
  local others name
  for name in $(ls "$cache/deps"); do
    if [[ $name != "${1%-*-*}"-* ]]; then rm -rf "${cache:?}/deps/$name"; fi
  done
  others=$(ls -t "$cache/deps" | grep -vxF "$1" || true)
  for name in $(tail -n "+$CACHE_DEPS_MAX" <<< "$others"); do rm -rf "${cache:?}/deps/$name"; done
  for name in $(ls -tr "$cache/deps" | grep -vxF "$1"); do
    if [ "$(du -sm "$cache/deps" | cut -f 1)" -le "$CACHE_DEPS_MIB_MAX" ]; then break; fi
    rm -rf "${cache:?}/deps/$name"
  done
  find "$cache/tools" -mindepth 1 -maxdepth 1 -mtime "+$CACHE_UNUSED_DAYS_MAX" -exec rm -rf {} +
  # Removes files that a killed run left.
  find "$cache/tools" "$cache/deps" -mindepth 1 -maxdepth 1 -name '.new.*' -mtime +0 -exec rm -rf {} +
}

# cache_tool NAME-VERSION COMMAND...: makes the tool with the command, which finds the folder to fill in $new, unless it is
# there. The folder's path is then in $tool.
cache_tool() {
  tool=$cache/tools/$1
  if [ ! -d "$tool" ]; then
    new=$(mktemp -d "$cache/tools/.new.XXXXXX")
    if ! "${@:2}"; then rm -rf "$new"; return 1; fi
    if [ -d "$tool" ] || ! mv "$new" "$tool"; then rm -rf "$new"; fi
  fi
  touch "$tool"
}

# cargo_tool NAME VERSION OPTIONS...: from crates.io, as the command .tools/bin/NAME. Built without optimisation, which takes a
# minute or two instead of five; what the tools do themselves takes a second.
cargo_tool() {
  cache_tool "$1-$2" cargo_install "$@"
  mkdir -p .tools/bin
  ln -sfn "$(cd "$tool/bin" && pwd)/$1" ".tools/bin/$1"
}
cargo_install() {
  CARGO_PROFILE_DEV_DEBUG=0 CARGO_TARGET_DIR=$new/build \
    cargo install "$1" --version "$2" --locked --debug --root "$new" "${@:3}" && rm -rf "$new/build"
}
