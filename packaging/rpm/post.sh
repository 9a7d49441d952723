# Nothing is enabled, started or restarted: a start may begin a sync, and a restart cuts clients off.
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
fi
if [ "$1" -eq 1 ]; then
    # Keys will be kept there; the unit asks for the same mode.
    chmod 0750 /etc/farshore
    echo "farshore: nothing was started. Write /etc/farshore/farshore.toml first; 'man farshore-init' shows how."
else
    echo "farshore: nothing was started or restarted. A running daemon keeps the old program until 'systemctl restart farshore'."
fi
