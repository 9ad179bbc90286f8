# Keep a workspace until standard input ends.
. ./workspace.sh
echo "$dir"
# shellcheck disable=SC2034 # any line will do
read -r line && bye=1
deaf
exit 0
