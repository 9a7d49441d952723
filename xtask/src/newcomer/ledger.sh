#!/bin/sh
# A ledger in double entry: each transaction has a number, an account that gives and an account that takes. A number is written on the
# second console once its commit has returned.
query() { psql -h /tmp -U postgres -d postgres -v ON_ERROR_STOP=1 "$@"; }
case $1 in
begin) query -qc 'create table ledger (id int, account text, amount int, primary key (id, account))' ;;
# What holds of any prefix: no number is left out, each has both of its lines, and nothing was lost or made.
verify) query -Atc "select 'ledger', count(*), count(distinct id), coalesce(max(id), 0), coalesce(sum(amount), 0) from ledger" ;;
write)
    n=$(query -Atc 'select coalesce(max(id), 0) from ledger') || exit 1
    while :; do
        n=$((n + 1))
        # `echo` of this shell would take the backslash for its own.
        printf '%s\n' "begin; insert into ledger values ($n, 'gives', -$n), ($n, 'takes', $n); commit;" "\\echo acked $n"
    done | query -q > /dev/ttyS2
    ;;
esac
