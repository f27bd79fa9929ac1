#!/usr/bin/env bash
# What Spark on Kubernetes expects of an image's entrypoint: the first argument is `driver` or `executor`, the rest comes
# as arguments and SPARK_* variables (BasicDriverFeatureStep and BasicExecutorFeatureStep of Spark). The pip package
# of Spark brings no entrypoint of its own. Anything else is run as it stands.
set -euo pipefail
role=${1:-}
case $role in
  driver)
    shift
    exec "$SPARK_HOME/bin/spark-submit" --deploy-mode client \
      --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" "$@"
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
