# shellcheck shell=bash
# Finds free ports on loopback for the servers that a test starts.

# free_ports: the first of a hundred ports without a listener. The ports are outside ip_local_port_range, from which the kernel assigns ports to
# outgoing connections: connections of a Ceph cluster sometimes take ports of that range.
free_ports() {
  local first used try
  used=$(ss -Htln | awk '{ sub(".*:", "", $4); print int($4 / 100) }')
  for ((try = 0; try < 100; try++)); do
    first=$((200 + RANDOM % 120))
    grep -qx $first <<< "$used" || break
  done
  echo $((first * 100))
}
