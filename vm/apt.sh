# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # used by the scripts that source this file; common.sh sets $kernels and $suites
# Reads Debian's packages of any architecture, with a private apt state. The host's apt state is neither used nor changed. For vm/fetch and vm/root.

keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# mirror: prints the URL of the Debian mirror. The default is a Debian host's own mirror: it is close, and may be the only reachable one.
mirror() {
  local codename own=
  # shellcheck source=/dev/null
  codename=$(. /etc/os-release && [ "$ID" = debian ] && echo "${VERSION_CODENAME:-}") || codename=
  # shellcheck disable=SC2016 # apt's variable
  [ -z "$codename" ] || own=$(apt-get indextargets --format '$(REPO_URI)' "Release: $codename" "Component: main" 2> /dev/null | sort -u | head -n 1)
  echo "${PLUMBLINE_DEBIAN_MIRROR:-${own:-http://deb.debian.org/debian}}"
}

# apt_state ARCHITECTURE: prints the directory of the apt state.
apt_state() { case $1 in amd64) echo "$kernels/.apt" ;; *) echo "$kernels/.apt-$1" ;; esac; }

# private_apt ARCHITECTURE TOOL...: runs apt-get or apt-cache on that state.
private_apt() {
  local apt tool=$2
  apt=$(apt_state "$1")
  "$tool" -qq -o Dir::State="$apt" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt" \
    -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferencesparts=/dev/null \
    -o Acquire::Languages=none -o Acquire::Retries=3 -o Acquire::GzipIndexes=true -o APT::Architecture="$1" -o APT::Architectures="$1" -o APT::Sandbox::User=root "${@:3}"
}

# read_suites ARCHITECTURE: updates the package indexes of the suites.
read_suites() {
  local from apt
  from=$(mirror)
  apt=$(apt_state "$1")
  mkdir -p "$apt/lists/partial" "$apt/archives/partial" && : > "$apt/status"
  printf "deb [signed-by=$keyring] $from %s main\n" "${suites[@]}" > "$apt/sources.list"
  private_apt "$1" apt-get -o APT::Update::Error-Mode=any update || { say "cannot read Debian's ${suites[*]} from $from; PLUMBLINE_DEBIAN_MIRROR names another mirror"; return 1; }
}
