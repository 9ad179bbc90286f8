# Answer requests, a line each, by the function `serve`, until `bye` or the end of standard input.
# Both streams on stdout: so what a request printed is all before the line that ends its answer.
# shellcheck disable=SC2034,SC2154 # of workspace.sh
exec 3<&0 </dev/null 2>&1
echo "$dir"
while read -r line <&3; do
  [ "$line" = bye ] && bye=1 && break
  # shellcheck disable=SC2086 # the function's arguments
  serve $line
  echo "$tag $?"
done
deaf
exit 0
