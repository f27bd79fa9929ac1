#!/usr/bin/env bash
# Submits a job of the image to Kubernetes in cluster mode. What follows -- goes to the job.
#
#   SPARK_MASTER=k8s://https://HOST:6443 NAMESPACE=spark submit.sh window_counts -- \
#       --bootstrap-servers fleet-bootstrap.default:9092 --topic flights \
#       --fields "origin STRING, event_time TIMESTAMP" --event-time event_time --group-by origin \
#       --sink parquet --output /data/counts --checkpoint /data/checkpoint
#
# Settings, all by environment:
#   SPARK_MASTER   k8s://URL of the API server (required)     NAMESPACE      spark
#   IMAGE          logfleet/spark:0.1.0                       EXECUTORS      2
#   CLAIM          spark-data: PVC mounted at /data           ZONE           where CLAIM's volume is, if anywhere
#   APP_NAME       the job's name                             SPARK_CONF     more "key=value" lines
# Apply submit/rbac.yaml to the namespace first. spark-submit must be in PATH: `pip install pyspark`, of the image's version.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
refuse() { echo "submit.sh: $1" >&2; exit 2; }

case ${1:-} in
  -h | --help) sed -n '2,/^set/{s/^# \{0,1\}//;/^set/d;p}' "$0"; exit 0 ;;
esac
[ $# -ge 2 ] && [ "$2" = -- ] || refuse "write: submit.sh JOB -- ARGUMENTS (submit.sh --help says more)"
job=$1
shift 2
if [ ! -f "$here/../jobs/$job.py" ]; then
  jobs=$(cd "$here/../jobs" && printf '%s\n' *.py | sed 's/\.py$//' | paste -sd' ')
  refuse "there is no job '$job'; there is: $jobs"
fi
[[ ${SPARK_MASTER:-} =~ ^k8s://. ]] || refuse "SPARK_MASTER is '${SPARK_MASTER:-}'; set it to k8s://URL of the API server"
executors=${EXECUTORS:-2}
[[ $executors =~ ^[1-9][0-9]*$ ]] || refuse "EXECUTORS is '$executors'; write a number from 1"
command -v spark-submit > /dev/null || refuse "spark-submit is not in PATH; install it with: pip install pyspark"

conf=(
  "spark.executor.instances=$executors"
  "spark.kubernetes.namespace=${NAMESPACE:-spark}"
  "spark.kubernetes.container.image=${IMAGE:-logfleet/spark:0.1.0}"
  "spark.kubernetes.container.image.pullPolicy=IfNotPresent"
  "spark.kubernetes.authenticate.driver.serviceAccountName=spark"
  "spark.sql.session.timeZone=UTC"
)
for role in driver executor; do
  conf+=("spark.kubernetes.$role.podTemplateFile=$here/pod.yaml")
  volume=spark.kubernetes.$role.volumes.persistentVolumeClaim.data
  conf+=("$volume.options.claimName=${CLAIM:-spark-data}" "$volume.mount.path=/data")
  conf+=("spark.kubernetes.$role.label.logfleet.dev/volume=${CLAIM:-spark-data}")  # pod.yaml keeps these on one node
done
[ -z "${ZONE:-}" ] || conf+=("spark.kubernetes.node.selector.topology.kubernetes.io/zone=$ZONE")
while IFS= read -r line; do
  [ -n "$line" ] || continue
  [[ $line =~ ^spark\.[^=]+= ]] || refuse "SPARK_CONF has the line '$line'; write spark.KEY=VALUE"
  conf+=("$line")
done <<< "${SPARK_CONF:-}"
arguments=()
for setting in "${conf[@]}"; do arguments+=(--conf "$setting"); done
# a submitter's own PYSPARK_PYTHON would be copied into the driver's pod, where that path does not exist
unset PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON
exec spark-submit --master "$SPARK_MASTER" --deploy-mode cluster --name "${APP_NAME:-${job//_/-}}" \
  "${arguments[@]}" "local:///opt/logfleet/jobs/$job.py" "$@"
