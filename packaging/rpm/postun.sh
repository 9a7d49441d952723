# What tells a node's volumes from unknown devices is no file of the package: a removal does not delete it.
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
fi
if [ "$1" -eq 0 ] && [ -d /var/lib/farshore ]; then
    echo "farshore: the state of this node was kept in /var/lib/farshore. Delete the directory by hand when no mirror needs it."
fi
if [ "$1" -eq 0 ] && { [ -e /etc/farshore/farshore.toml ] || [ -d /etc/farshore/tls ]; }; then
    echo "farshore: the configuration and the keys were kept in /etc/farshore."
fi
