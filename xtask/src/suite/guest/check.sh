# How a check is told; xtask counts the lines.
check() { # what it shows, and the command that shows it
    what=$1; shift
    if said=$("$@" 2>&1); then echo "CHECK ok: $what"; else echo "CHECK FAILED: $what"; fi
    echo "$said" | sed 's/^/    /'
}
ends_with() { # the exit code, a part of what is said, and the command
    code=$1; part=$2; shift 2
    said=$("$@" 2>&1); found=$?
    echo "exit code $found: $said"
    [ $found = $code ] && echo "$said" | grep -qF "$part"
}
