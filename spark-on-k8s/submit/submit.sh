#!/usr/bin/env bash
# Submits a job to Kubernetes in cluster mode and waits for its end. Arguments after -- are the job's.
#
#   SPARK_MASTER=k8s://https://HOST:6443 NAMESPACE=spark submit.sh window_counts -- \
#       --bootstrap-servers fleet-bootstrap.default:9092 --topic flights \
#       --fields "origin STRING, event_time TIMESTAMP" --event-time event_time --group-by origin \
#       --sink delta --output /data/counts --checkpoint /data/checkpoint
#
# The job is one of the image's (window_counts, dlq_router, topic_to_table, table_to_topic), a Python file on this machine, which
# is sent along, or a URL that the driver can read: local:///opt/my/job.py in the image, s3a://bucket/job.py.
#
# Settings, all by environment:
#   SPARK_MASTER   k8s://URL of the API server (required)     NAMESPACE      spark
#   IMAGE          logfleet/spark:0.1.0                       EXECUTORS      2
#   CLAIM          spark-data: PVC mounted at /data, or none  ZONE           where CLAIM's volume is, if anywhere
#   APP_NAME       the job's name                             SPARK_CONF     more "key=value" lines
#   SETTINGS       YAML file of the job's settings            PACKAGES       Maven coordinates, by comma
# Apply submit/rbac.yaml to the namespace first. spark-submit must be in PATH: `pip install pyspark`, of the image's version.
# Ends with 1 if the driver did not succeed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
refuse() { echo "submit.sh: $1" >&2; exit 2; }

case ${1:-} in
  -h | --help) sed -n '2,/^set/{s/^# \{0,1\}//;/^set/d;p}' "$0"; exit 0 ;;
esac
[ $# -ge 2 ] && [ "$2" = -- ] || refuse "write: submit.sh JOB -- ARGUMENTS (submit.sh --help shows all settings)"
job=$1
shift 2
conf_dir=$(mktemp -d); trap 'rm -rf "$conf_dir"' EXIT
cp "$here"/../conf/* "$conf_dir"
# Spark copies text files of its configuration folder to the driver's: /opt/spark/conf
send() { # FILE NAME
  [ "$(wc -c < "$1")" -lt 500000 ] || refuse "$1 is larger than 500 kB; put it into the image or an object store, and name its URL"
  cp "$1" "$conf_dir/$2"
}
case $job in
  *://*) main=$job ;;
  */* | *.py)
    [ -f "$job" ] || refuse "there is no file $job"
    send "$job" "$(basename "$job")"
    main=local:///opt/spark/conf/$(basename "$job") ;;
  *)
    if [ ! -f "$here/../jobs/$job.py" ]; then
      jobs=$(cd "$here/../jobs" && printf '%s\n' *.py | sed 's/\.py$//' | paste -sd' ')
      refuse "there is no job '$job'; choose from: $jobs"
    fi
    main=local:///opt/logfleet/jobs/$job.py ;;
esac
settings=()
if [ -n "${SETTINGS:-}" ]; then
  [ -f "$SETTINGS" ] || refuse "SETTINGS is '$SETTINGS', and there is no such file"
  send "$SETTINGS" job-settings.yaml
  settings=(--settings /opt/spark/conf/job-settings.yaml)
fi
[[ ${SPARK_MASTER:-} =~ ^k8s://. ]] || refuse "SPARK_MASTER is '${SPARK_MASTER:-}'; set it to k8s://URL of the API server"
executors=${EXECUTORS:-2}
[[ $executors =~ ^[1-9][0-9]*$ ]] || refuse "EXECUTORS is '$executors'; write a number from 1"
command -v spark-submit > /dev/null || refuse "spark-submit is not in PATH; install it with: pip install pyspark"

name=$(basename "$job" .py)
conf=(
  "spark.executor.instances=$executors"
  "spark.kubernetes.namespace=${NAMESPACE:-spark}"
  "spark.kubernetes.container.image=${IMAGE:-logfleet/spark:0.1.0}"
  "spark.kubernetes.container.image.pullPolicy=IfNotPresent"
  "spark.kubernetes.authenticate.driver.serviceAccountName=spark"
  # executors use the same log configuration as the driver
  "spark.kubernetes.executor.disableConfigMap=false"
)
claim=${CLAIM:-spark-data}
for role in driver executor; do
  conf+=("spark.kubernetes.$role.podTemplateFile=$here/pod.yaml")
  [ "$claim" != none ] || continue
  volume=spark.kubernetes.$role.volumes.persistentVolumeClaim.data
  conf+=("$volume.options.claimName=$claim" "$volume.mount.path=/data")
  conf+=("spark.kubernetes.$role.label.logfleet.dev/volume=$claim")  # pod.yaml keeps these on one node
done
[ -z "${ZONE:-}" ] || conf+=("spark.kubernetes.node.selector.topology.kubernetes.io/zone=$ZONE")
while IFS= read -r line; do
  [ -n "$line" ] || continue
  [[ $line =~ ^spark\.[^=]+= ]] || refuse "SPARK_CONF has the line '$line'; write spark.KEY=VALUE"
  conf+=("$line")
done <<< "${SPARK_CONF:-}"
arguments=()
for setting in "${conf[@]}"; do arguments+=(--conf "$setting"); done
[ -z "${PACKAGES:-}" ] || arguments+=(--packages "$PACKAGES")
# a submitter's own PYSPARK_PYTHON would be copied into the driver's pod, where that path does not exist
unset PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON
export SPARK_CONF_DIR=$conf_dir
# spark-submit prints how the driver ended, but its exit code is 0 either way
{
  spark-submit --master "$SPARK_MASTER" --deploy-mode cluster --name "${APP_NAME:-${name//_/-}}" \
    "${arguments[@]}" "$main" "${settings[@]}" "$@" 2>&1 >&3 | tee "$conf_dir/output" >&2
} 3>&1
[[ " ${conf[*]} " != *waitAppCompletion=false* ]] || exit 0
grep -q 'phase: Succeeded' "$conf_dir/output" || { echo "submit.sh: the driver did not succeed" >&2; exit 1; }
