# Sourced by ./check and tests/tools: keeps tools and built dependencies between runs.
#
# The cache is a folder outside of the checkout: $PAYFERRY_CACHE, or $XDG_CACHE_HOME/payferry, or ~/.cache/payferry. If
# PAYFERRY_CACHE is empty, or the folder cannot be written, tools are kept in .tools and everything is built in target.
#
#   tools/NAME-VERSION/   one tool
#   build/RUST/           cargo's build folder (`build.build-dir`) for one version of Rust
#
# Cargo locks its build folder and names each file after package, features and profile, so checkouts can share the folder.
# Crates of this workspace are built once per checkout, dependencies once. Finished programs are in target as usual.

# Size of the build folder. A larger one is removed before the next build.
CACHE_BUILD_MIB_MAX=20480
# Files of workspace crates are removed after this time: they are of no use to other checkouts.
CACHE_WORKSPACE_DAYS_MAX=2
# Tools and build folders of other Rust versions are removed after this time without use.
CACHE_UNUSED_DAYS_MAX=30

# Sets `cache`, and tells cargo where to build.
cache_open() {
  cache=${PAYFERRY_CACHE-${XDG_CACHE_HOME:-${HOME:-}/.cache}/payferry}
  if [ -z "$cache" ] || ! mkdir -p "$cache/tools" "$cache/build" 2> /dev/null || [ ! -w "$cache/build" ]; then
    cache=$PWD/.tools
    mkdir -p "$cache/tools"
    return
  fi
  if ! command -v rustc > /dev/null; then return; fi
  CARGO_BUILD_BUILD_DIR=$cache/build/$(rustc -vV | sed -n 's/^\(release\|host\): //p' | paste -sd -)
  export CARGO_BUILD_BUILD_DIR
  mkdir -p "$CARGO_BUILD_BUILD_DIR"
  touch "$CARGO_BUILD_BUILD_DIR"
}

# Removes what is too old or too large, unless another run uses the cache; then keeps others from doing so until this script
# ends.
cache_prune() {
  if command -v flock > /dev/null; then
    exec 9> "$cache/lock"
    if flock -n -x 9; then cache_remove_old; fi
    flock -s 9
  fi
}
cache_remove_old() {
  find "$cache/tools" -mindepth 1 -maxdepth 1 -mtime "+$CACHE_UNUSED_DAYS_MAX" -exec rm -rf {} +
  if [ -z "${CARGO_BUILD_BUILD_DIR:-}" ]; then return; fi
  find "$cache/build" -mindepth 1 -maxdepth 1 -mtime "+$CACHE_UNUSED_DAYS_MAX" -exec rm -rf {} +
  # Test programs have no ending; everything else of this workspace has a name that begins with `payferry`.
  find "$CARGO_BUILD_BUILD_DIR" -mindepth 3 -maxdepth 3 -mtime "+$CACHE_WORKSPACE_DAYS_MAX" \
    \( -name '*payferry*' -o -path '*/incremental/*' -o -path '*/deps/*' -type f -perm -u+x ! -name '*.so' \) \
    -exec rm -rf {} +
  if [ "$(du -sm "$CARGO_BUILD_BUILD_DIR" | cut -f 1)" -gt "$CACHE_BUILD_MIB_MAX" ]; then
    rm -rf "$CARGO_BUILD_BUILD_DIR"
  fi
}

# cache_tool NAME-VERSION COMMAND...: makes the tool with the command, which finds the folder to fill in $new, unless it
# exists. The folder's path is then in $tool.
cache_tool() {
  tool=$cache/tools/$1
  if [ ! -d "$tool" ]; then
    new=$(mktemp -d "$cache/tools/.new.XXXXXX")
    if ! "${@:2}"; then rm -rf "$new"; return 1; fi
    # Another run may have been faster.
    if [ -d "$tool" ] || ! mv "$new" "$tool"; then rm -rf "$new"; fi
  fi
  touch "$tool"
}
