# Boots a system with the units of the package, twice, and shows what its scenario (role.sh) found. Runs in namespaces of its own.
set -e
system=$1 work=$2 farshore=$3 units=$4 parts=$5
mkdir -p "$work/upper" "$work/work" "$work/root"
mount -t overlay overlay -o lowerdir=$system,upperdir=$work/upper,workdir=$work/work $work/root
r=$work/root
for unit in corosync pacemaker; do ln -s /dev/null $r/etc/systemd/system/$unit.service; done
cp "$farshore" $r/usr/bin/farshore
cp "$units"/*.service "$units"/*.target $r/usr/lib/systemd/system/
cp "$parts/role.sh" $r/role.sh; chmod 755 $r/role.sh
echo alpha > $r/etc/hostname
mkdir -p $r/etc/farshore $r/srv/beta
truncate -s 64M $r/srv/a.img $r/srv/b.img
cat > $r/etc/farshore/farshore.toml <<END
cluster = "trial"
secret_file = "/etc/farshore/secret"
[nodes.alpha]
address = "127.0.0.1:7337"
state = "/var/lib/farshore"
[nodes.beta]
address = "127.0.0.1:7338"
state = "/srv/beta"
[groups.db]
primary = "alpha"
secondary = "beta"
mode = "sync"
journal = "128MiB"
queue.disk = 0
history = "96MiB"
[groups.db.volumes.data]
alpha = "/srv/a.img"
beta = "/srv/b.img"
END
(umask 077; head -c 32 /dev/urandom | base64 > $r/etc/farshore/secret)
mkdir -p $r/etc/systemd/system/farshore.service.d
printf '[Service]\nReadWritePaths=/srv\n' > $r/etc/systemd/system/farshore.service.d/volumes.conf
cat > $r/etc/systemd/system/peer.service <<END
[Service]
ExecStart=/usr/bin/farshore serve --node beta
[Install]
WantedBy=multi-user.target
END
wants=$r/etc/systemd/system/multi-user.target.wants
mkdir -p $wants
ln -s /etc/systemd/system/peer.service $wants/
cat > $r/user.sh <<'END'
#!/bin/sh
role=$(farshore status db --format shell 2>/dev/null | sed -n "s/^farshore_role='\(.*\)'/\1/p")
case $1 in start) echo start ;; stop) sleep 1; [ ! -e /slow ] || sleep 5; echo "stop:$role" ;; esac >> /user.log
END
chmod 755 $r/user.sh
cat > $r/etc/systemd/system/user.service <<END
[Unit]
PartOf=farshore-primary@db.target
After=farshore-primary@db.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/user.sh start
ExecStop=/user.sh stop
[Install]
WantedBy=farshore-primary@db.target
END
cat > $r/etc/systemd/system/trial.service <<END
[Unit]
After=basic.target dbus.service peer.service
[Service]
Type=oneshot
ExecStart=/role.sh
[Install]
WantedBy=multi-user.target
END
ln -s /etc/systemd/system/trial.service $wants/
for boot in 1 2; do
    timeout 120 systemd-nspawn --quiet --register=no --keep-unit --private-network --boot --directory $r > "$work/console" 2>&1 ||
        echo "CHECK FAILED: the system boots and ends"
done
cat $r/role.log
# The second boot ended while this node was primary.
if [ "$(tr '\n' ' ' < $r/user.log)" = "start stop:primary " ]; then
    echo "CHECK ok: at a shutdown what hangs on the target stops before the daemon"
else
    echo "CHECK FAILED: at a shutdown what hangs on the target stops before the daemon"
    cat $r/user.log
fi
