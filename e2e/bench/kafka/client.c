/* The load of `make bench-kafka` and `make bench-fleet`: librdkafka as an application uses it, and what the brokers' processes have spent meanwhile.
 *
 *   client write pids=P,P... beside=P,P... bootstrap=H:P topic=T partitions=N records=N record_bytes=N codec=none|lz4
 *       records to the partitions in turns, as fast as they are taken
 *   client read  (the same arguments)      the records that `write` has left, from offset 0, after its one per partition
 *   client pace  ... rate=PER_S seconds=S connections=N batch_records=N linger_ms=MS
 *       at fixed times one record, which goes alone unless batch_records says otherwise; a record's latency counts from when it should have been sent, so that a
 *       broker that stalls is charged for all that waited ("coordinated omission")
 *   client transact  ... transaction_records=N
 *       as `write`, in transactions of so many records (the last may be smaller); a latency is that of the call that commits
 *   client flush  ... transaction_records=N
 *       the same without transactions: after so many records it waits until all are acknowledged
 *   client first bootstrap=H:P topic=T     tries until one record is acknowledged
 *
 * All writes have acks=all and, but for `first`, are idempotent. Prints one line of JSON. What is acknowledged is compared with what the
 * partitions hold, what is read with what was written. Ends with a message and status 1 otherwise; SIGALRM ends it after give_up_s.
 *
 * A value's bytes: half of them random, half zero, wherever it begins in the pool, so that lz4 halves it.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <librdkafka/rdkafka.h>
#include <netdb.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000ULL
#define PATIENCE_MS 60000
#define POOL_BYTES (1 << 20)
#define STRIDE 7919 /* a prime: the values begin everywhere in the pool */
#define PRODUCE 0   /* API keys */
#define FETCH 1
#define CONSUME_AT_ONCE 10000

static struct {
        const char *mode, *bootstrap, *topic, *codec, *pids, *beside, *batch_records, *linger_ms;
        long partitions, records, record_bytes, rate, seconds, connections, transaction_records, give_up_s;
} o = {.codec = "none", .pids = "", .beside = "", .batch_records = "1", .linger_ms = "0", .partitions = 1, .records = 1, .record_bytes = 100, .rate = 1000, .seconds = 1, .connections = 1, .transaction_records = 1, .give_up_s = 120};

static char *pool;
static atomic_long requests[2]; /* Produce and Fetch requests that were sent */
static atomic_long failures, deliveries;
static uint64_t *latencies_ns; /* of pace, in the order of acknowledgement */
static long latencies_max;

static void die(const char *format, ...) {
        va_list arguments;
        va_start(arguments, format);
        vfprintf(stderr, format, arguments);
        va_end(arguments);
        fputc('\n', stderr);
        exit(1);
}

static uint64_t now_ns(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* What the brokers' processes have used: exact (the clock of another process, clock_getcpuclockid(3)), and its split in clock ticks. beside: what stands beside them, say their metadata store. */
struct spent {
        uint64_t wall_ns, cpu_ns, beside_ns;
        double user_s, system_s;
        long requests[2];
};

static uint64_t cpu_ns_of(long pid) {
        struct timespec t;
        clockid_t clock;
        if (clock_getcpuclockid((pid_t)pid, &clock) || clock_gettime(clock, &t)) die("there is no process %ld", pid);
        return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* The next number of a list, whose rest is left; 0 at its end. */
static long next_pid(const char **list) {
        char *end;
        long pid = strtol(*list, &end, 10);
        if (**list && (pid < 1 || (*end && *end != ','))) die("%s: numbers of processes are wanted", *list);
        *list = *end ? end + 1 : end;
        return pid;
}

static void add_ticks(struct spent *s, long pid) {
        char path[64], text[1024];
        unsigned long user, system;
        snprintf(path, sizeof path, "/proc/%ld/stat", pid);
        FILE *file = fopen(path, "r");
        if (!file || !fgets(text, sizeof text, file)) die("%s cannot be read", path);
        fclose(file);
        char *fields = strrchr(text, ')'); /* the name before it may hold anything */
        if (!fields || sscanf(fields + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
                die("%s is not as proc_pid_stat(5) says", path);
        s->user_s += (double)user / (double)sysconf(_SC_CLK_TCK);
        s->system_s += (double)system / (double)sysconf(_SC_CLK_TCK);
}

static struct spent spent_so_far(void) {
        struct spent s = {.wall_ns = now_ns()};
        const char *pids = o.pids, *beside = o.beside;
        for (long pid; (pid = next_pid(&pids));) {
                s.cpu_ns += cpu_ns_of(pid);
                add_ticks(&s, pid);
        }
        for (long pid; (pid = next_pid(&beside));) s.beside_ns += cpu_ns_of(pid);
        for (int key = 0; key < 2; key++) s.requests[key] = atomic_load(&requests[key]);
        return s;
}

static void print_spent(const struct spent *before, const struct spent *after, long records, int key) {
        printf("{\"records\": %ld, \"requests\": %ld, \"wall_s\": %.6f, \"cpu_s\": %.9f, \"beside_s\": %.9f, \"user_s\": %.2f, \"system_s\": %.2f, \"librdkafka\": \"%s\"",
               records, after->requests[key] - before->requests[key], (double)(after->wall_ns - before->wall_ns) / NS_PER_S,
               (double)(after->cpu_ns - before->cpu_ns) / NS_PER_S, (double)(after->beside_ns - before->beside_ns) / NS_PER_S, after->user_s - before->user_s, after->system_s - before->system_s,
               rd_kafka_version_str());
}

static void fill_pool(void) {
        uint64_t random = 88172645463325252ULL; /* xorshift64, always the same bytes */
        pool = calloc(1, POOL_BYTES + (size_t)o.record_bytes);
        if (!pool) die("no memory");
        for (long at = 0; at < POOL_BYTES + o.record_bytes; at++) {
                random ^= random << 13, random ^= random >> 7, random ^= random << 17;
                if (at % o.record_bytes < o.record_bytes / 2) pool[at] = (char)random;
        }
}

static void *value(long number) { return pool + (number * STRIDE) % POOL_BYTES; }

/* Counts requests as they are sent: whether a row had the batches that it says is seen, not assumed. */
static rd_kafka_resp_err_t count_request(rd_kafka_t *rk, int fd, const char *name, int32_t id, int16_t key, int16_t version,
                                         int32_t correlation, size_t size, void *opaque) {
        (void)rk, (void)fd, (void)name, (void)id, (void)version, (void)correlation, (void)size, (void)opaque;
        if (key == PRODUCE || key == FETCH) atomic_fetch_add(&requests[key], 1);
        return RD_KAFKA_RESP_ERR_NO_ERROR;
}

static rd_kafka_resp_err_t count_its_requests(rd_kafka_t *rk, const rd_kafka_conf_t *conf, void *opaque, char *text, size_t size) {
        (void)conf, (void)opaque, (void)text, (void)size;
        return rd_kafka_interceptor_add_on_request_sent(rk, "count", count_request, NULL);
}

static void delivered(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
        (void)rk, (void)opaque;
        if (message->err) {
                if (atomic_fetch_add(&failures, 1) < 3) fprintf(stderr, "not delivered: %s\n", rd_kafka_err2str(message->err));
        } else if (message->_private) { /* a record with a planned time */
                uint64_t latency_ns = now_ns() - (uint64_t)(uintptr_t)message->_private;
                long number = atomic_fetch_add(&deliveries, 1); /* at the end `flush` serves the queue as well as serve_producers */
                if (number < latencies_max) latencies_ns[number] = latency_ns;
        }
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value_text) {
        char text[256];
        if (rd_kafka_conf_set(conf, name, value_text, text, sizeof text)) die("%s", text);
}

static rd_kafka_t *connect_as(rd_kafka_type_t type, const char *const *settings) {
        char text[256];
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        set(conf, "bootstrap.servers", o.bootstrap);
        for (; *settings; settings += 2) set(conf, settings[0], settings[1]);
        if (type == RD_KAFKA_PRODUCER) {
                set(conf, "acks", "all");
                set(conf, "compression.codec", o.codec);
                rd_kafka_conf_set_dr_msg_cb(conf, delivered);
        }
        rd_kafka_conf_interceptor_add_on_new(conf, "count", count_its_requests, NULL);
        rd_kafka_t *rk = rd_kafka_new(type, conf, text, sizeof text);
        if (!rk) die("%s", text);
        return rk;
}

static rd_kafka_topic_t *open_topic(rd_kafka_t *rk) {
        rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, o.topic, NULL);
        if (!topic) die("%s: %s", o.topic, rd_kafka_err2str(rd_kafka_last_error()));
        return topic;
}

/* Returns when the partitions that are asked for have leaders. */
static void await_leaders(rd_kafka_t *rk, rd_kafka_topic_t *topic) {
        for (uint64_t end = now_ns() + PATIENCE_MS * 1000000ULL; now_ns() < end; usleep(10000)) {
                const struct rd_kafka_metadata *metadata;
                if (rd_kafka_metadata(rk, 0, topic, &metadata, PATIENCE_MS)) continue;
                long led = 0;
                for (int n = 0; metadata->topic_cnt == 1 && n < metadata->topics[0].partition_cnt; n++)
                        led += metadata->topics[0].partitions[n].leader >= 0;
                rd_kafka_metadata_destroy(metadata);
                if (led >= o.partitions) return;
        }
        die("%s does not have %ld led partitions", o.topic, o.partitions);
}

static void send_one(rd_kafka_topic_t *topic, int32_t partition, long number, uint64_t planned_ns) {
        if (rd_kafka_produce(topic, partition, RD_KAFKA_MSG_F_BLOCK, value(number), (size_t)o.record_bytes, NULL, 0, (void *)(uintptr_t)planned_ns))
                die("record %ld: %s", number, rd_kafka_err2str(rd_kafka_last_error()));
}

static void flush(rd_kafka_t *rk) {
        if (rd_kafka_flush(rk, (int)o.give_up_s * 1000)) die("not everything was acknowledged");
        if (atomic_load(&failures)) die("%ld records were not delivered", atomic_load(&failures));
}

static rd_kafka_t **producers; /* of pace */
static int ready[2];           /* a pipe: numbers of producers with something to be told */

/* Serves all producers: one thread for any number of connections, woken by each as it has something. */
static void *serve_producers(void *unused) {
        int numbers[256];
        ssize_t size;
        (void)unused;
        while ((size = read(ready[0], numbers, sizeof numbers)) > 0)
                for (size_t n = 0; n < (size_t)size / sizeof *numbers; n++) rd_kafka_poll(producers[numbers[n]], 0);
        return NULL;
}

/* One record to each partition, so that nothing of a client's beginning is measured. */
static void warm(rd_kafka_t *rk, rd_kafka_topic_t *topic, long first, long step) {
        for (long partition = first; partition < o.partitions; partition += step) send_one(topic, (int32_t)partition, partition, 0);
        flush(rk);
}

/* What was acknowledged is there: `records` in all partitions together. */
static void check_stored(rd_kafka_t *rk, long records) {
        long stored = 0;
        for (int32_t partition = 0; partition < o.partitions; partition++) {
                int64_t low, high;
                if (rd_kafka_query_watermark_offsets(rk, o.topic, partition, &low, &high, PATIENCE_MS)) die("offsets of partition %d are not told", partition);
                stored += high - low;
        }
        if (stored != records) die("%ld records are stored, not %ld", stored, records);
}

/* Batches are full: 50 ms are enough for that from 16 MB/s on 12 partitions, and `requests` tells. */
static void write_records(void) {
        static const char *const settings[] = {"enable.idempotence", "true", "batch.size", "65536", "batch.num.messages", "100000", "linger.ms", "50",
                                               "queue.buffering.max.messages", "200000", "delivery.report.only.error", "true", NULL};
        rd_kafka_t *rk = connect_as(RD_KAFKA_PRODUCER, settings);
        rd_kafka_topic_t *topic = open_topic(rk);
        await_leaders(rk, topic);
        warm(rk, topic, 0, 1);
        struct spent before = spent_so_far();
        for (long number = 0; number < o.records; number++) send_one(topic, (int32_t)(number % o.partitions), number, 0);
        flush(rk);
        struct spent after = spent_so_far();
        check_stored(rk, o.records + o.partitions);
        print_spent(&before, &after, o.records, PRODUCE);
        puts("}");
}

static void read_records(void) {
        static const char *const settings[] = {"fetch.wait.max.ms", "500", "queued.max.messages.kbytes", "65536", NULL};
        static rd_kafka_message_t *messages[CONSUME_AT_ONCE];
        rd_kafka_t *rk = connect_as(RD_KAFKA_CONSUMER, settings);
        rd_kafka_topic_t *topic = open_topic(rk);
        rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
        int64_t *next = calloc((size_t)o.partitions, sizeof *next);
        long wanted = o.records + o.partitions;
        if (!next) die("no memory");
        await_leaders(rk, topic);
        struct spent before = spent_so_far();
        for (int32_t partition = 0; partition < o.partitions; partition++)
                if (rd_kafka_consume_start_queue(topic, partition, 0, queue)) die("partition %d cannot be read", partition);
        for (long got = 0; got < wanted;) {
                ssize_t count = rd_kafka_consume_batch_queue(queue, 1000, messages, CONSUME_AT_ONCE);
                for (ssize_t n = 0; n < count; n++) {
                        rd_kafka_message_t *m = messages[n];
                        if (m->err) die("partition %d: %s", m->partition, rd_kafka_message_errstr(m));
                        if (m->offset != next[m->partition]++) die("partition %d: offset %" PRId64 " came out of turn", m->partition, m->offset);
                        if (m->len != (size_t)o.record_bytes) die("a record of %zu bytes came", m->len);
                        rd_kafka_message_destroy(m);
                }
                if (count > 0) got += count;
        }
        struct spent after = spent_so_far();
        print_spent(&before, &after, wanted, FETCH);
        puts("}");
}

static int by_size(const void *a, const void *b) {
        uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
        return (one > other) - (one < other);
}

/* The smallest latency that at least this share of the records did not exceed. */
static double percentile_us(long count, double share) {
        long rank = (long)(share * (double)count + 0.999999);
        return (double)latencies_ns[rank > count ? count - 1 : rank > 0 ? rank - 1 : 0] / 1e3;
}

static void print_latencies(long count) {
        qsort(latencies_ns, (size_t)count, sizeof *latencies_ns, by_size);
        printf(", \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f}\n", percentile_us(count, 0.5), percentile_us(count, 0.99),
               percentile_us(count, 0.999), percentile_us(count, 1));
}

static void sleep_until(uint64_t when_ns) {
        struct timespec t = {.tv_sec = (time_t)(when_ns / NS_PER_S), .tv_nsec = (long)(when_ns % NS_PER_S)};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL)) continue;
}

static void pace(void) {
        const char *const settings[] = {"enable.idempotence", "true", "batch.num.messages", o.batch_records, "linger.ms", o.linger_ms, NULL};
        rd_kafka_t **rk = producers = calloc((size_t)o.connections, sizeof *rk);
        rd_kafka_topic_t **topic = calloc((size_t)o.connections, sizeof *topic);
        pthread_t server;
        latencies_max = o.rate * o.seconds;
        latencies_ns = calloc((size_t)latencies_max, sizeof *latencies_ns);
        if (!rk || !topic || !latencies_ns) die("no memory");
        if (pipe(ready) || fcntl(ready[1], F_SETFL, O_NONBLOCK)) die("no pipe");
        for (int n = 0; n < o.connections; n++) {
                rk[n] = connect_as(RD_KAFKA_PRODUCER, settings);
                topic[n] = open_topic(rk[n]);
                rd_kafka_queue_io_event_enable(rd_kafka_queue_get_main(rk[n]), ready[1], &n, sizeof n);
        }
        if (pthread_create(&server, NULL, serve_producers, NULL)) die("no thread");
        await_leaders(rk[0], topic[0]);
        for (long n = 0; n < o.connections; n++) send_one(topic[n], (int32_t)(n % o.partitions), n, 0);
        for (long n = 0; n < o.connections; n++) flush(rk[n]);
        prctl(PR_SET_TIMERSLACK, 1); /* of this thread: wake when asked to, not up to 50 us later */
        struct spent before = spent_so_far();
        uint64_t start_ns = now_ns() + NS_PER_S / 100;
        for (long number = 0; number < latencies_max; number++) {
                long which = number % o.connections;
                uint64_t planned_ns = start_ns + (uint64_t)number * NS_PER_S / (uint64_t)o.rate;
                sleep_until(planned_ns);
                send_one(topic[which], (int32_t)(which % o.partitions), number, planned_ns);
        }
        for (long n = 0; n < o.connections; n++) flush(rk[n]);
        struct spent after = spent_so_far();
        check_stored(rk[0], latencies_max + o.connections);
        long count = atomic_load(&deliveries);
        if (count != latencies_max) die("%ld of %ld records were acknowledged", count, latencies_max);
        print_spent(&before, &after, count, PRODUCE);
        print_latencies(count);
}

static void must(rd_kafka_error_t *error) {
        if (error) die("%s", rd_kafka_error_string(error));
}

static long committed; /* transactions, or flushes */

/* So many records, and their commit, whose time is noted; a flush in its place where there are no transactions. */
static void transact_once(rd_kafka_t *rk, rd_kafka_topic_t *topic, int is_plain, long from, long to) {
        if (!is_plain) must(rd_kafka_begin_transaction(rk));
        for (long number = from; number < to; number++) send_one(topic, (int32_t)(number % o.partitions), number, 0);
        uint64_t start_ns = now_ns();
        if (is_plain) flush(rk);
        else must(rd_kafka_commit_transaction(rk, PATIENCE_MS));
        if (latencies_ns) latencies_ns[committed++] = now_ns() - start_ns;
}

static void transact(int is_plain) {
        char id[64];
        snprintf(id, sizeof id, "bench-%ld", (long)getpid());
        const char *const settings[] = {"enable.idempotence", "true", "batch.size", "65536", "batch.num.messages", "100000", "linger.ms", "50",
                                        "queue.buffering.max.messages", "200000", "delivery.report.only.error", "true",
                                        is_plain ? NULL : "transactional.id", id, NULL};
        rd_kafka_t *rk = connect_as(RD_KAFKA_PRODUCER, settings);
        rd_kafka_topic_t *topic = open_topic(rk);
        await_leaders(rk, topic);
        if (!is_plain) must(rd_kafka_init_transactions(rk, PATIENCE_MS));
        transact_once(rk, topic, is_plain, 0, o.partitions); /* so that nothing of a client's beginning is measured */
        latencies_ns = calloc((size_t)(o.records / o.transaction_records + 1), sizeof *latencies_ns);
        if (!latencies_ns) die("no memory");
        struct spent before = spent_so_far();
        for (long number = 0; number < o.records; number += o.transaction_records)
                transact_once(rk, topic, is_plain, number, number + o.transaction_records < o.records ? number + o.transaction_records : o.records);
        struct spent after = spent_so_far();
        if (atomic_load(&failures)) die("%ld records were not delivered", atomic_load(&failures));
        if (is_plain) check_stored(rk, o.records + o.partitions); /* else there are markers, too */
        print_spent(&before, &after, o.records, PRODUCE);
        print_latencies(committed);
}

/* Returns when the broker's port is open. librdkafka, left to itself, comes back to a broker that was away once a second only. */
static void await_port(void) {
        char host[256];
        const char *port = strrchr(o.bootstrap, ':');
        struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV}, *address;
        if (!port || (size_t)(port - o.bootstrap) >= sizeof host) die("bootstrap=%s is not HOST:PORT", o.bootstrap);
        snprintf(host, sizeof host, "%.*s", (int)(port - o.bootstrap), o.bootstrap);
        if (getaddrinfo(host, port + 1, &hints, &address)) die("bootstrap=%s is not ADDRESS:PORT", o.bootstrap);
        for (int is_open = 0; !is_open; usleep(10000)) { /* ends with SIGALRM at the latest */
                int fd = socket(address->ai_family, SOCK_STREAM, 0);
                if (fd < 0) die("no socket");
                is_open = !connect(fd, address->ai_addr, address->ai_addrlen);
                close(fd);
        }
        freeaddrinfo(address);
}

static void first(void) {
        static const char *const settings[] = {"reconnect.backoff.ms", "10", "reconnect.backoff.max.ms", "10", "retry.backoff.ms", "10",
                                               "linger.ms", "0", "log_level", "0", NULL};
        await_port();
        rd_kafka_t *rk = connect_as(RD_KAFKA_PRODUCER, settings);
        rd_kafka_topic_t *topic = open_topic(rk);
        await_leaders(rk, topic);
        while (!atomic_load(&deliveries)) { /* ends with SIGALRM at the latest */
                send_one(topic, 0, 0, now_ns());
                while (rd_kafka_outq_len(rk) > 0) rd_kafka_poll(rk, 10);
        }
        printf("{\"acknowledged_ns\": %" PRIu64 "}\n", now_ns());
}

static void parse(int count, char **arguments) {
        struct { const char *name; const char **text; long *number; } known[] = {
            {"bootstrap", &o.bootstrap, NULL}, {"topic", &o.topic, NULL}, {"codec", &o.codec, NULL}, {"pids", &o.pids, NULL},
            {"beside", &o.beside, NULL}, {"batch_records", &o.batch_records, NULL}, {"linger_ms", &o.linger_ms, NULL}, {"partitions", NULL, &o.partitions}, {"records", NULL, &o.records}, {"record_bytes", NULL, &o.record_bytes}, {"rate", NULL, &o.rate},
            {"seconds", NULL, &o.seconds}, {"transaction_records", NULL, &o.transaction_records}, {"connections", NULL, &o.connections}, {"give_up_s", NULL, &o.give_up_s}};
        o.mode = count > 1 ? arguments[1] : "";
        for (int n = 2; n < count; n++) {
                char *equals = strchr(arguments[n], '=');
                size_t k = 0, kinds = sizeof known / sizeof *known;
                for (; equals && k < kinds; k++)
                        if (strlen(known[k].name) == (size_t)(equals - arguments[n]) && !strncmp(known[k].name, arguments[n], (size_t)(equals - arguments[n])))
                                break;
                if (!equals || k == kinds) die("%s: not an argument", arguments[n]);
                if (known[k].text) *known[k].text = equals + 1;
                else if ((*known[k].number = atol(equals + 1)) < 1) die("%s: a number from 1 on is wanted", arguments[n]);
        }
        if (!o.bootstrap || !o.topic) die("bootstrap=HOST:PORT and topic=NAME are wanted");
}

/* A producer of librdkafka takes about ten descriptors. */
static void allow_files(void) {
        struct rlimit limit;
        if (getrlimit(RLIMIT_NOFILE, &limit)) die("no limit on files is told");
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
}

int main(int count, char **arguments) {
        parse(count, arguments);
        allow_files();
        alarm((unsigned)o.give_up_s);
        fill_pool();
        if (!strcmp(o.mode, "write")) write_records();
        else if (!strcmp(o.mode, "read")) read_records();
        else if (!strcmp(o.mode, "pace")) pace();
        else if (!strcmp(o.mode, "transact")) transact(0);
        else if (!strcmp(o.mode, "flush")) transact(1);
        else if (!strcmp(o.mode, "first")) first();
        else die("%s: write, read, pace, transact, flush or first", o.mode);
        fflush(stdout);
        _exit(0); /* the broker's side of a hundred goodbyes is not waited for */
}
