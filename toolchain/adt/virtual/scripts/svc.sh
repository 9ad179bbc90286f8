#!/system/bin/sh
# svc power stayon true|false|ac|usb|wireless
case $* in
  'power stayon true') value=7;;
  'power stayon false') value=0;;
  'power stayon ac') value=1;;
  'power stayon usb') value=2;;
  'power stayon wireless') value=4;;
  *) echo "usage: svc power stayon true|false|ac|usb|wireless" >&2; exit 1;;
esac
settings put global stay_on_while_plugged_in $value
