# An upgrade leaves the daemon alone; a removal stops the daemon, and a later installation finds the unit disabled.
if [ "$1" -eq 0 ]; then
    # A file system there would wait for a daemon that is gone, and then fail.
    for record in /run/farshore/attached/*/*.json; do
        if [ -e "$record" ]; then
            echo "farshore: volumes are block devices of this machine ('farshore attached'). Unmount and detach them first." >&2
            exit 1
        fi
    done
fi

if [ "$1" -eq 0 ] && command -v systemctl >/dev/null; then
    if [ -d /run/systemd/system ]; then
        systemctl stop 'farshore-primary@*.service'
        systemctl stop 'farshore-primary@*.target'
        # Nothing is attached: these are the ones that wait for their next try.
        systemctl stop 'farshore-attach@*.service'
        systemctl stop farshore.service
        # One that has failed would stay on systemd's list, without a unit.
        systemctl reset-failed 'farshore*' || :
    fi
    systemctl --quiet disable farshore.service || :
    # An instance that stays enabled would begin by itself after a later installation.
    for link in /etc/systemd/system/*/farshore-attach@*.service /etc/systemd/system/*/farshore-primary@*.service; do
        if [ -L "$link" ]; then
            systemctl --quiet disable "${link##*/}" || :
        fi
    done
fi
