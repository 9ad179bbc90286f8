#!/system/bin/sh
# log [-t TAG] [-p PRIORITY] MESSAGE...
tag=shell priority=I
while getopts t:p: option; do
  case $option in
    t) tag=$OPTARG;;
    p) priority=$OPTARG;;
    *) exit 1;;
  esac
done
shift $((OPTIND - 1))
echo "$(date '+%m-%d %H:%M:%S.000') $PPID $PPID $priority $tag: $*" >> /data/log/main
