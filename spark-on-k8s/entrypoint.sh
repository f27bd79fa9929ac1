#!/usr/bin/env bash
# The image's entrypoint, in the form that Spark on Kubernetes expects: the first argument is `driver` or `executor`, and the rest
# comes as arguments and SPARK_* variables (BasicDriverFeatureStep and BasicExecutorFeatureStep of Spark). Spark's pip package
# contains no entrypoint. `client` runs a driver in this pod, which POD_NAME and POD_IP name, and executors in pods of their
# own. Any other command is run unchanged.
set -euo pipefail

# Runs a driver until it ends. SIGTERM is passed on to the job if it has written its process id, so that it can finish its batch;
# else to spark-submit.
drive() {
  export LOGFLEET_JOB_PID=${TMPDIR:-/tmp}/logfleet-job.pid
  rm -f "$LOGFLEET_JOB_PID"
  "$@" &
  local child=$! code last
  trap 'kill -TERM "$(cat "$LOGFLEET_JOB_PID" 2> /dev/null || echo '"$child"')" 2> /dev/null || true' TERM
  while true; do # a signal interrupts the wait but does not end the child
    wait "$child" && code=0 || code=$?
    kill -0 "$child" 2> /dev/null || break
  done
  wait "$child" 2> /dev/null && last=0 || last=$?
  [ "$last" = 127 ] || code=$last # 127: an earlier wait has taken the exit code
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
    options=() # one variable per option, numbered from 0, as an option may contain blanks
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
