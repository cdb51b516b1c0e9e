# shellcheck shell=bash
# Ports of loopback for the servers that a test starts.

# free_ports: the first of a hundred at which nobody listens. The kernel gives none of them to a connection (ip_local_port_range): a port
# that it may give is taken by some connection of a cluster now and then.
free_ports() {
  local first used try
  used=$(ss -Htln | awk '{ sub(".*:", "", $4); print int($4 / 100) }')
  for ((try = 0; try < 100; try++)); do
    first=$((200 + RANDOM % 120))
    grep -qx $first <<< "$used" || break
  done
  echo $((first * 100))
}
