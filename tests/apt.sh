# Sourced by ./check and the scripts beside it: how what they need is installed where it is missing.

# apt_install PACKAGE...
apt_install() {
  command -v apt-get > /dev/null || { echo "$1 is missing; install it and run this again" >&2; return 1; }
  local sudo=''
  if [ "$(id -u)" != 0 ]; then sudo=sudo; fi
  $sudo apt-get update -qq
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}
