# All images of Logfleet, one target each: broker, operator, spark, test.
#
#   docker build --target broker -t logfleet/broker:0.1.0 .
#   docker run -p 9092:9092 -v logfleet:/var/lib/logfleet logfleet/broker:0.1.0     # one broker, at localhost:9092
#
# Packages are installed by hash from the members' locks, in layers that change only with the locks; our own code is
# the last layer, so a change of it builds in seconds. Build tools do not get into the final images. Two build
# secrets are optional and never part of an image: `pip` (a pip.conf that names the index), `ca` (certificates to trust
# while fetching).

FROM python:3.13-slim-trixie AS base
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONFAULTHANDLER=1

FROM base AS builder
ENV PIP_CACHE_DIR=/var/cache/pip PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_PROGRESS_BAR=off
COPY e2e/wheels.lock /tmp/
RUN --mount=type=cache,target=/var/cache/pip,sharing=locked \
    --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca \
    python -m venv /opt/build && /opt/build/bin/pip install --require-hashes -r /tmp/wheels.lock \
    && python -m venv --without-pip /opt/venv

# ---- third-party packages: one stage per lock ----
FROM builder AS broker-packages
COPY broker_image/requirements.lock /tmp/
RUN --mount=type=cache,target=/var/cache/pip,sharing=locked \
    --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca \
    /opt/build/bin/pip wheel --no-build-isolation --require-hashes -w /tmp/wheels -r /tmp/requirements.lock \
    && /opt/build/bin/pip --python /opt/venv/bin/python install --no-deps --no-index /tmp/wheels/*

FROM builder AS operator-packages
COPY operator/requirements.lock /tmp/
RUN --mount=type=cache,target=/var/cache/pip,sharing=locked \
    --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca \
    /opt/build/bin/pip wheel --no-build-isolation --require-hashes -w /tmp/wheels -r /tmp/requirements.lock \
    && /opt/build/bin/pip --python /opt/venv/bin/python install --no-deps --no-index /tmp/wheels/*

FROM builder AS spark-packages
COPY spark-on-k8s/requirements.lock /tmp/
RUN --mount=type=cache,target=/var/cache/pip,sharing=locked \
    --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca \
    /opt/build/bin/pip wheel --no-build-isolation --require-hashes -w /tmp/wheels -r /tmp/requirements.lock \
    && /opt/build/bin/pip --python /opt/venv/bin/python install --no-deps --no-index /tmp/wheels/* \
    && rm -rf /tmp/wheels
# CI: a jar that cannot be fetched ends the build
COPY spark-on-k8s/prepare_spark.py spark-on-k8s/fetch_jars.py spark-on-k8s/jars.lock spark-on-k8s/tables.lock /tmp/
RUN --mount=type=cache,target=/var/cache/logfleet,sharing=locked --mount=type=secret,id=ca \
    if [ -f /run/secrets/ca ]; then export SSL_CERT_FILE=/run/secrets/ca; fi; \
    CI=true XDG_CACHE_HOME=/var/cache /opt/venv/bin/python /tmp/prepare_spark.py

FROM builder AS test-packages
COPY e2e/clients.lock /tmp/
RUN --mount=type=cache,target=/var/cache/pip,sharing=locked \
    --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca \
    /opt/build/bin/pip wheel --no-build-isolation --require-hashes -w /tmp/wheels -r /tmp/clients.lock \
    && /opt/build/bin/pip --python /opt/venv/bin/python install --no-deps --no-index /tmp/wheels/*

# ---- our packages: under /opt/code, with the paths that they will have in /opt/venv ----
FROM builder AS logfleet-code
COPY broker_image/pyproject.toml broker_image/README.md broker_image/LICENSE /src/
COPY broker_image/src /src/src
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation -w /tmp/wheels /src \
    && /opt/build/bin/pip --python /opt/venv/bin/python install --no-deps --no-index --prefix /opt/code /tmp/wheels/*

FROM builder AS operator-code
COPY broker_image/src/logfleet/__init__.py /broker_image/src/logfleet/
COPY operator/pyproject.toml operator/README.md operator/LICENSE /src/
COPY operator/src /src/src
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation -w /tmp/wheels /src \
    && /opt/build/bin/pip --python /opt/venv/bin/python install --no-deps --no-index --prefix /opt/code /tmp/wheels/*

FROM builder AS spark-code
COPY broker_image/src/logfleet/__init__.py /broker_image/src/logfleet/
COPY spark-on-k8s/pyproject.toml spark-on-k8s/README.md spark-on-k8s/LICENSE /src/
COPY spark-on-k8s/src /src/src
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation -w /tmp/wheels /src \
    && /opt/build/bin/pip --python /opt/venv/bin/python install --no-deps --no-index --prefix /opt/code /tmp/wheels/*

# ---- the images ----
# The kernel does not deliver fatal timer signals to process 1 of a container, so the broker runs as a child of it.
FROM base AS broker
RUN apt-get update -q && apt-get install -yq --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*
COPY --from=broker-packages /opt/venv /opt/venv
COPY --from=logfleet-code /opt/code /opt/venv
COPY broker_image/image/server.properties /etc/logfleet/
RUN install -d -o 10001 -g 10001 /var/lib/logfleet
VOLUME /var/lib/logfleet
EXPOSE 9092 9644
USER 10001:10001
ENTRYPOINT ["/usr/bin/tini", "-g", "--", "logfleet"]
CMD ["broker", "/etc/logfleet/server.properties", "--env-prefix", "KAFKA_"]

FROM base AS operator
COPY --from=operator-packages /opt/venv /opt/venv
COPY --from=logfleet-code /opt/code /opt/venv
COPY --from=operator-code /opt/code /opt/venv
USER 10001:10001
ENTRYPOINT ["logfleet-operator"]

# Driver and executors. Hadoop's login needs a name for the user; Debian's JRE needs the folder for its manual pages,
# which a slim base lacks.
FROM base AS spark
RUN groupadd --gid 185 spark && useradd --uid 185 --gid 185 --home-dir /tmp --no-create-home spark \
    && mkdir -p /usr/share/man/man1 \
    && apt-get update -q && apt-get install -yq --no-install-recommends openjdk-21-jre-headless tini \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*
COPY --from=spark-packages /opt/venv /opt/venv
COPY --from=logfleet-code /opt/code /opt/venv
COPY --from=spark-code /opt/code /opt/venv
COPY spark-on-k8s/conf /opt/venv/lib/python3.13/site-packages/pyspark/conf
COPY spark-on-k8s/entrypoint.sh /opt/logfleet/
COPY spark-on-k8s/jobs /opt/logfleet/jobs
ENV SPARK_HOME=/opt/venv/lib/python3.13/site-packages/pyspark PYSPARK_PYTHON=/opt/venv/bin/python
USER 185:185
WORKDIR /tmp
ENTRYPOINT ["/usr/bin/tini", "-s", "--", "/opt/logfleet/entrypoint.sh"]

# Third-party Kafka clients and the workloads of the tests, to connect to brokers from inside the cluster.
FROM base AS test
COPY --from=test-packages /opt/venv /opt/venv
COPY --from=logfleet-code /opt/code /opt/venv
COPY e2e/harness/flights.py /opt/tests/e2e/harness/
COPY e2e/workloads /opt/tests/e2e/workloads
ENV PYTHONPATH=/opt/tests
USER 10001:10001
CMD ["python"]
