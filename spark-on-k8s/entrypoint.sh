#!/usr/bin/env bash
# What Spark on Kubernetes expects of an image's entrypoint: the first argument is `driver` or `executor`, the rest comes
# as arguments and SPARK_* variables (BasicDriverFeatureStep and BasicExecutorFeatureStep of Spark). The pip package
# of Spark brings no entrypoint of its own. `client` runs a driver in this very pod, which POD_NAME and POD_IP name, with
# executors as pods beside it. Anything else is run as it stands.
set -euo pipefail

# Runs a driver until it ends. SIGTERM goes to the job itself, if it has left its process id because it can end its batch first;
# else to spark-submit, as Kubernetes would have it.
drive() {
  export LOGFLEET_JOB_PID=${TMPDIR:-/tmp}/logfleet-job.pid
  rm -f "$LOGFLEET_JOB_PID"
  "$@" &
  local child=$! code last
  trap 'kill -TERM "$(cat "$LOGFLEET_JOB_PID" 2> /dev/null || echo '"$child"')" 2> /dev/null || true' TERM
  while true; do # a signal ends the wait, not the child
    wait "$child" && code=0 || code=$?
    kill -0 "$child" 2> /dev/null || break
  done
  wait "$child" 2> /dev/null && last=0 || last=$?
  [ "$last" = 127 ] || code=$last # 127: it was waited for before
  exit "$code"
}

role=${1:-}
case $role in
  driver)
    shift
    drive "$SPARK_HOME/bin/spark-submit" --deploy-mode client \
      --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" "$@"
    ;;
  client)
    shift
    drive "$SPARK_HOME/bin/spark-submit" --deploy-mode client \
      --master "k8s://https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT" \
      --conf "spark.driver.host=$POD_IP" --conf "spark.driver.bindAddress=$POD_IP" \
      --conf "spark.kubernetes.driver.pod.name=$POD_NAME" "$@"
    ;;
  executor)
    options=() # one variable per option, numbered from 0: an option may hold blanks
    for ((i = 0; ; i++)); do
      name=SPARK_JAVA_OPT_$i
      [ -n "${!name+set}" ] || break
      options+=("${!name}")
    done
    classpath=${SPARK_CONF_DIR:-$SPARK_HOME/conf}:$SPARK_HOME/jars/*
    [ -z "${SPARK_EXTRA_CLASSPATH:-}" ] || classpath+=:$SPARK_EXTRA_CLASSPATH
    exec java "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" -cp "$classpath" \
      org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" \
      --executor-id "$SPARK_EXECUTOR_ID" \
      --cores "$SPARK_EXECUTOR_CORES" \
      --app-id "$SPARK_APPLICATION_ID" \
      --hostname "$SPARK_EXECUTOR_POD_IP" \
      --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
      --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
  *)
    exec "$@"
    ;;
esac
