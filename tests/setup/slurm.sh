#!/usr/bin/env bash
# A real Slurm on one machine (Debian 12 or Ubuntu, as root, no systemd needed): munge, slurmctld, a slurmd per node,
# partitions cpu and gpu, and spare, whose jobs are requeued when the others need their place; GPUs that exist on paper
# only. Refuses where another Slurm is configured.
#
#   slurm.sh up [OPTIONS]       install what is missing, configure, start, wait until the node is idle
#   slurm.sh down               cancel all jobs, stop the daemons; packages, configuration, accounts stay
#   slurm.sh restart [OPTIONS]  down, then up
#   slurm.sh status             daemons, node, queue; exit 1 unless the node takes jobs
#   slurm.sh user NAME          let NAME submit jobs under account bench (needs --accounting slurmdbd)
#   slurm.sh purge              down, then remove state, configuration, database and installed packages
#
# OPTIONS
#   --accounting none|slurmdbd  slurmdbd adds a private MariaDB and gives sacct      default none
#   --nodes N                   nodes, all on this machine                           default 1
#   --gpus N                    GPUs of a node on paper, 0 to 7                      default 2
#   --cpus N                    CPUs of a node, more than there are is allowed       default all
#   --memory-mb N               memory of a node on paper                            default 90 %
#
# A second up changes nothing unless an option differs; then the daemons are restarted.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"

readonly STATE=/var/lib/automedbench-setup/slurm
readonly LOGS=$STATE/log
readonly ETC=/etc/slurm
readonly MARK="# Written by tests/setup/slurm.sh of automedbench; 'slurm.sh purge' removes it."
readonly HOSTS_MARK="# automedbench slurm.sh"
readonly DATABASE_SOCKET=$STATE/mysql-run/socket
readonly ACCOUNT=bench CLUSTER=automedbench

accounting=none nodes=1 gpus=2 cpus=$(nproc)
memory_mb=$(awk '/^MemTotal:/ { printf "%d", $2 / 1024 * 0.9 }' /proc/meminfo)
node=$(hostname -s 2>/dev/null || hostname)

parse_options() {
  while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || die "option $1 needs a value"
    case $1 in
      --accounting) accounting=$2 ;;
      --nodes) nodes=$2 ;;
      --gpus) gpus=$2 ;;
      --cpus) cpus=$2 ;;
      --memory-mb) memory_mb=$2 ;;
      *) die "unknown option $1; 'head -27 $0' lists them" ;;
    esac
    shift 2
  done
  case $accounting in none | slurmdbd) ;; *) die "--accounting $accounting: must be none or slurmdbd" ;; esac
  [[ $nodes =~ ^[1-9]$ ]] || die "--nodes $nodes: must be 1 to 9"
  [[ $gpus =~ ^[0-7]$ ]] || die "--gpus $gpus: must be 0 to 7"
}

# ---------------------------------------------------------------- whose Slurm is it

ours() { [ -f "$1" ] && [ "$(head -n 1 "$1")" = "$MARK" ]; }

refuse_foreign_slurm() {
  local file
  for file in "$ETC"/{slurm,slurmdbd,gres,cgroup}.conf /run/slurm/conf/slurm.conf; do
    [ ! -e "$file" ] || ours "$file" ||
      die "$file exists and was not written by this script: this machine belongs to another Slurm, which is left alone"
  done
}

# ---------------------------------------------------------------- configuration

slurm_conf() {
  cat <<CONF
$MARK
ClusterName=$CLUSTER
SlurmctldHost=$node(127.0.0.1)
AuthType=auth/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$STATE/slurmctld
SlurmdSpoolDir=$STATE/slurmd/%n
SlurmctldPidFile=$STATE/slurmctld.pid
SlurmdPidFile=$STATE/slurmd-%n.pid
SlurmctldLogFile=$LOGS/slurmctld.log
SlurmdLogFile=$LOGS/slurmd-%n.log
MpiDefault=none
ReturnToService=2

# Neither systemd nor cgroups are needed: processes are found and measured through /proc, and a job above
# its memory is ended by polling, once a second.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
KillWait=5

# CPUs, memory and GPUs are scheduled one by one. The node may be larger on paper than it is.
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
DefMemPerCPU=500

# Jobs start at once; the defaults spare a controller of thousands of nodes.
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,bf_interval=5,sched_interval=5,sched_min_interval=0
# Without accounting, squeue is all that Snakemake can ask, so finished jobs stay visible for an hour.
MinJobAge=3600

$(accounting_lines)

$(node_lines)
CONF
}

accounting_lines() {
  if [ "$accounting" = slurmdbd ]; then
    echo "AccountingStorageType=accounting_storage/slurmdbd"
    echo "AccountingStorageHost=localhost"
    echo "AccountingStorageEnforce=associations,limits,qos"
    [ "$gpus" -eq 0 ] || echo "AccountingStorageTRES=gres/gpu"
  else
    echo "AccountingStorageType=accounting_storage/none"
  fi
}

# One node has the machine's name, several have a number behind it.
node_names() { [ "$nodes" -eq 1 ] && echo "$node" || seq -f "$node-%g" "$nodes"; }

node_lines() {
  local common="Nodes=ALL MaxTime=1-00:00:00 DefaultTime=00:10:00 State=UP" gres= name port=6820 # 6819 is slurmdbd
  if [ "$gpus" -gt 0 ]; then
    echo "GresTypes=gpu"
    gres=" Gres=gpu:paper:$gpus"
  fi
  for name in $(node_names); do
    echo "NodeName=$name NodeHostname=$node NodeAddr=127.0.0.1 Port=$port CPUs=$cpus RealMemory=$memory_mb$gres State=UNKNOWN"
    port=$((port + 1))
  done
  echo "PartitionName=cpu Default=YES PriorityTier=10 PreemptMode=OFF $common"
  [ "$gpus" -eq 0 ] || echo "PartitionName=gpu Default=NO PriorityTier=10 PreemptMode=OFF $common"
  echo "PartitionName=spare Default=NO PriorityTier=1 PreemptMode=REQUEUE $common"
}

# Slurm wants one device file per GPU and sets CUDA_VISIBLE_DEVICES for character devices only. Harmless
# ones that every Linux has stand in, so that no device must be made.
gres_conf() {
  local devices=(null zero full random urandom tty ptmx) index name
  echo "$MARK"
  for name in $(node_names); do
    for ((index = 0; index < gpus; index++)); do
      echo "NodeName=$name Name=gpu Type=paper File=/dev/${devices[index]}"
    done
  done
}

# Nothing here uses cgroups; naming a plugin keeps slurmd from probing the machine for one.
cgroup_conf() { printf '%s\n' "$MARK" "CgroupPlugin=cgroup/v1"; }

slurmdbd_conf() {
  cat <<CONF
$MARK
AuthType=auth/munge
DbdHost=localhost
SlurmUser=root
LogFile=$LOGS/slurmdbd.log
PidFile=$STATE/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageUser=root
StorageLoc=slurm_acct_db
CONF
}

conf_checksum() { { cat "$ETC"/{slurm,gres,cgroup,slurmdbd}.conf 2>/dev/null || true; } | cksum; }

write_configuration() {
  install -d -m 755 "$ETC" "$STATE" "$STATE/slurmd" "$LOGS"
  install -d -m 700 "$STATE/slurmctld"
  rm -f "$ETC"/{slurm,gres,cgroup,slurmdbd}.conf
  slurm_conf >"$ETC/slurm.conf"
  gres_conf >"$ETC/gres.conf"
  cgroup_conf >"$ETC/cgroup.conf"
  [ "$accounting" = slurmdbd ] || return 0
  install -m 600 /dev/null "$ETC/slurmdbd.conf"
  slurmdbd_conf >"$ETC/slurmdbd.conf"
}

name_the_host() {
  getent hosts "$node" >/dev/null || echo "127.0.0.1 $node $HOSTS_MARK" >>/etc/hosts
}

# ---------------------------------------------------------------- daemons

running() { [ -s "$1" ] && kill -0 "$(cat "$1")" 2>/dev/null; }

# in_background LOG COMMAND...: own session, no terminal, nothing kept open of the caller.
in_background() {
  local log=$1
  shift
  setsid nohup "$@" >"$log" 2>&1 </dev/null &
}

# stop PIDFILE NAME: asks, waits ten seconds, then insists.
stop() {
  local pid tries
  if running "$1"; then
    pid=$(cat "$1")
    kill "$pid" 2>/dev/null || true
    for ((tries = 100; tries > 0; tries--)); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
    say "$2 stopped"
  fi
  rm -f "$1"
}

munge_answers() { munge -n </dev/null 2>/dev/null | unmunge >/dev/null 2>&1; }

# A munge that runs already is used and, later, not stopped.
start_munge() {
  munge_answers && return
  [ -s /etc/munge/munge.key ] || mungekey --create
  chown munge:munge /etc/munge/munge.key
  chmod 600 /etc/munge/munge.key
  install -d -o munge -g munge -m 755 /run/munge
  install -d -o munge -g munge -m 711 /var/lib/munge
  install -d -o munge -g munge -m 700 /var/log/munge
  in_background "$LOGS/munged.out" setpriv --reuid munge --regid munge --clear-groups \
    /usr/sbin/munged --foreground --force
  echo $! >"$STATE/munged.pid"
  wait_for 15 "munge" munge_answers
}

sql() { mariadb --no-defaults --protocol=socket --socket="$DATABASE_SOCKET" --user=root "$@"; }

# A database server of our own, as user slurm: own folder and socket, no port, and no password, because the
# socket tells the server that it is root who asks.
start_database() {
  install -d -o slurm -g slurm -m 700 "$STATE/mysql" "$STATE/mysql-tmp"
  install -d -o slurm -g slurm -m 755 "$STATE/mysql-run"
  [ -e "$STATE/mysql.ready" ] || create_database
  if ! running "$STATE/mariadbd.pid"; then
    in_background "$LOGS/mariadbd.out" mariadbd --no-defaults --user=slurm --datadir="$STATE/mysql" \
      --tmpdir="$STATE/mysql-tmp" --socket="$DATABASE_SOCKET" --pid-file="$STATE/mysql/mariadbd.pid" \
      --skip-networking --innodb-buffer-pool-size=64M --innodb-lock-wait-timeout=900
    echo $! >"$STATE/mariadbd.pid"
  fi
  wait_for 60 "MariaDB (log: $LOGS/mariadbd.out)" sql -e 'select 1'
  sql -e "create database if not exists slurm_acct_db"
}

create_database() {
  find "$STATE/mysql" -mindepth 1 -delete
  mariadb-install-db --no-defaults --user=slurm --datadir="$STATE/mysql" --tmpdir="$STATE/mysql-tmp" \
    --skip-test-db --auth-root-authentication-method=socket >"$LOGS/mariadb-install.log" 2>&1 ||
    die "the accounting database could not be made; see $LOGS/mariadb-install.log"
  touch "$STATE/mysql.ready"
}

# It runs as slurmctld does, which refuses news of accounts from anybody else, and takes the path of the
# database socket from MYSQL_UNIX_PORT only.
start_slurmdbd() {
  running "$STATE/slurmdbd.pid" ||
    in_background "$LOGS/slurmdbd.out" env MYSQL_UNIX_PORT="$DATABASE_SOCKET" /usr/sbin/slurmdbd -D
  wait_for 60 "slurmdbd (log: $LOGS/slurmdbd.log)" sacctmgr --noheader show cluster
}

has() { sacctmgr --noheader --parsable2 show "$@" | grep -q .; }

register_account() {
  has cluster "$CLUSTER" || sacctmgr --immediate --quiet add cluster "$CLUSTER" >/dev/null
  has account "$ACCOUNT" ||
    sacctmgr --immediate --quiet add account "$ACCOUNT" description=bench organization=bench >/dev/null
  register_user root
}

register_user() {
  has association user="$1" account="$ACCOUNT" format=user ||
    sacctmgr --immediate --quiet add user "$1" account="$ACCOUNT" >/dev/null
}

# Until slurmctld has told slurmdbd where it listens, it would not learn of users added later.
controller_registered() { sacctmgr --noheader --parsable2 show cluster format=controlport | grep -Eqx '[1-9][0-9]*'; }

start_accounting() {
  start_database
  start_slurmdbd
  register_account
}

start_slurmctld() {
  running "$STATE/slurmctld.pid" || in_background "$LOGS/slurmctld.out" /usr/sbin/slurmctld -D
  wait_for 30 "slurmctld (log: $LOGS/slurmctld.log)" sh -c 'scontrol ping | grep -q "is UP"'
}

start_slurmd() {
  local name
  for name in $(node_names); do
    install -d "$STATE/slurmd/$name"
    running "$STATE/slurmd-$name.pid" || in_background "$LOGS/slurmd-$name.out" /usr/sbin/slurmd -D -N "$name"
    wait_for 30 "slurmd (log: $LOGS/slurmd-$name.log)" running "$STATE/slurmd-$name.pid"
  done
}

nodes_take_jobs() {
  [ "$(sinfo -h -N -p cpu -o %T 2>/dev/null | grep -Ecx 'idle|mixed|allocated|completing')" -eq "${1:-1}" ]
}

# A node that was cut off earlier stays down until it is told otherwise.
resume_nodes() {
  local name
  for name in $(node_names); do
    nodes_take_jobs "$nodes" || scontrol update nodename="$name" state=resume 2>/dev/null || true
  done
  nodes_take_jobs "$nodes"
}

# ---------------------------------------------------------------- verbs

describe() {
  echo "slurm: nodes $(sinfo -h -p cpu -o '%N %T, %c CPUs, %m MB, %G'), partitions" \
    "$(sinfo -h -o %R | sort | tr '\n' ' ')accounting=$accounting"
}

up() {
  local before packages=(slurmctld slurmd slurm-client munge)
  need_root
  parse_options "$@"
  refuse_foreign_slurm
  [ "$accounting" = none ] || packages+=(slurmdbd mariadb-server-core mariadb-client-core)
  install_packages "$STATE/packages" "${packages[@]}"
  name_the_host
  before=$(conf_checksum)
  write_configuration
  if [ "$before" != "$(conf_checksum)" ]; then
    stop_slurm
  fi
  start_munge
  [ "$accounting" = none ] || start_accounting
  start_slurmctld
  [ "$accounting" = none ] || wait_for 30 "slurmctld at slurmdbd (log: $LOGS/slurmdbd.log)" controller_registered
  start_slurmd
  wait_for 30 "the nodes (logs: $LOGS)" resume_nodes
  describe
}

no_jobs_left() { [ -z "$(squeue --noheader --states=PENDING,RUNNING,COMPLETING,SUSPENDED)" ]; }

cancel_jobs() {
  running "$STATE/slurmctld.pid" || return 0
  squeue --noheader --states=PENDING,RUNNING,SUSPENDED --format=%A | sort -u | xargs -r timeout 10 scancel || true
  (wait_for 20 "the end of cancelled jobs" no_jobs_left) || true
}

stop_slurm() {
  cancel_jobs
  local file
  for file in "$STATE"/slurmd-*.pid; do
    [ ! -e "$file" ] || stop "$file" slurmd
  done
  stop "$STATE/slurmctld.pid" slurmctld
  stop "$STATE/slurmdbd.pid" slurmdbd
  stop "$STATE/mariadbd.pid" mariadbd
}

down() {
  need_root
  [ ! -e "$ETC/slurm.conf" ] || refuse_foreign_slurm
  stop_slurm
  stop "$STATE/munged.pid" munged
  echo "slurm: down"
}

controller_knows() { scontrol show assoc_mgr users="$1" flags=assoc | grep -q "UserName=$1("; }

add_user() {
  need_root
  [ -n "${1:-}" ] || die "usage: $0 user NAME"
  id "$1" >/dev/null 2>&1 || die "there is no user $1 on this machine; 'user.sh add $1' makes one"
  ours "$ETC/slurmdbd.conf" || die "accounting is off, so every user may submit; 'slurm.sh up --accounting slurmdbd' turns it on"
  register_user "$1"
  wait_for 15 "slurmctld's knowledge of $1" controller_knows "$1"
  echo "slurm: $1 may submit jobs under account $ACCOUNT"
}

status() {
  local daemon
  for daemon in munged mariadbd slurmdbd slurmctld; do
    if running "$STATE/$daemon.pid"; then
      echo "$daemon runs, pid $(cat "$STATE/$daemon.pid")"
    else
      echo "$daemon does not run"
    fi
  done
  sinfo -h -N -o %T 2>/dev/null | grep -Eqx 'idle|mixed|allocated|completing' || return 1
  sinfo --Node --long
  squeue
}

purge() {
  down
  ! ours "$ETC/slurm.conf" || rm -f "$ETC"/{slurm,gres,cgroup,slurmdbd}.conf
  sed -i "/$HOSTS_MARK\$/d" /etc/hosts
  remove_packages "$STATE/packages"
  rm -rf "$STATE"
  rmdir --ignore-fail-on-non-empty "$(dirname "$STATE")" "$ETC" 2>/dev/null || true
  echo "slurm: removed"
}

verb=${1:-}
[ $# -eq 0 ] || shift
case $verb in
  up) up "$@" ;;
  down) down ;;
  restart) down && up "$@" ;;
  status) status ;;
  user) add_user "$@" ;;
  purge) purge ;;
  *) die "usage: $0 up|down|restart|status|user|purge" ;;
esac
