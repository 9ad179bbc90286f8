# value FILE: set $v to its first line; empty where it may not be read.
# shellcheck disable=SC2034 # for who calls it
value() { v=; { IFS= read -r v <"$1"; } 2>/dev/null; }
