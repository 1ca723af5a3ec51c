/* A library with the interface of NCCL that folds memory of the host, and fails as it is told.
 *
 * Ranks of one name meet within a process.  A collective is done when all its ranks have been
 * called; until then the communicators say "in progress".
 */
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 8
#define CALLS 64
typedef struct { char internal[128]; } Id;
typedef struct {
  size_t size;
  unsigned magic, version;
  int blocking, words_a[3];
  const char *net_name;
  int words_b[2];
  const char *name;
  int words_c[14];
  int nvls_host_mode;
} Config;
/* kind: 0 an all-reduce, 1 bytes to a peer, 2 bytes from a peer. */
typedef struct { const void *source; void *target; size_t count; int dtype, op, kind, peer; } Call;
typedef struct { Id id; int rank, size, finalized, status, calls; Call call[CALLS]; } Comm;

static Comm *comms[64];
static int depth, next_id, fail_after = -1, fail_status, async_status, is_stuck;
int fake_version = 23203, fake_open, fake_aborted, fake_multicast = -1, fake_blocking = -1;

void fake_fail(int after, int status) { fail_after = after; fail_status = status; }
void fake_async(int status) { async_status = status; }
void fake_stick(int stuck) { is_stuck = stuck; }

static int enter(void) {
  if (fail_after == 0) { fail_after = -1; return fail_status; }
  if (fail_after > 0) fail_after--;
  return 0;
}

static Comm *find(const Id *id, int rank) {
  for (int i = 0; i < 64; i++)
    if (comms[i] && !memcmp(&comms[i]->id, id, sizeof *id) && comms[i]->rank == rank) return comms[i];
  return NULL;
}

static int is_complete(const Comm *comm) {
  for (int rank = 0; rank < comm->size; rank++)
    if (!find(&comm->id, rank)) return 0;
  return 1;
}

static size_t width(int dtype) { return (size_t[]){1, 1, 4, 4, 8, 8, 2, 4, 8, 2}[dtype]; }

static double load(const void *at, int dtype, size_t i) {
  switch (dtype) {
    case 2: return ((const int32_t *)at)[i];
    case 4: return (double)((const int64_t *)at)[i];
    case 7: return ((const float *)at)[i];
    default: return ((const double *)at)[i];
  }
}

static void put(void *at, int dtype, size_t i, double value) {
  switch (dtype) {
    case 2: ((int32_t *)at)[i] = (int32_t)value; break;
    case 4: ((int64_t *)at)[i] = (int64_t)value; break;
    case 7: ((float *)at)[i] = (float)value; break;
    default: ((double *)at)[i] = value;
  }
}

static double fold(int op, double a, double b) {
  return op == 0 ? a + b : op == 1 ? a * b : op == 2 ? (a > b ? a : b) : (a < b ? a : b);
}

static int same(const Call *a, const Call *b) {
  return a->op == b->op && a->dtype == b->dtype && a->count == b->count;
}

/* One all-reduce of all ranks. */
static void carry_out(Comm **row, int size) {
  size_t count = row[0]->call[0].count, wide = width(row[0]->call[0].dtype);
  int dtype = row[0]->call[0].dtype, op = row[0]->call[0].op;
  char *made = calloc(count + 1, wide);
  for (int rank = 0; rank < size; rank++) {
    const void *source = row[rank]->call[0].source;
    for (size_t i = 0; i < count; i++)
      put(made, dtype, i, rank ? fold(op, load(made, dtype, i), load(source, dtype, i)) : load(source, dtype, i));
  }
  for (int rank = 0; rank < size; rank++) memcpy(row[rank]->call[0].target, made, count * wide);
  free(made);
}

static void drop_call(Comm *comm, int at) {
  comm->calls--;
  memmove(comm->call + at, comm->call + at + 1, (comm->calls - at) * sizeof(Call));
}

/* The first call of a kind with a peer; -1 where an all-reduce comes before it. */
static int find_call(const Comm *comm, int kind, int peer) {
  for (int at = 0; at < comm->calls && comm->call[at].kind; at++)
    if (comm->call[at].kind == kind && comm->call[at].peer == peer) return at;
  return -1;
}

/* Bytes from one rank to another, as far as both have come to it. */
static int settle_pairs(Comm **row, int size) {
  for (int from = 0; from < size; from++)
    for (int to = 0, sent, got; to < size; to++)
      while ((sent = find_call(row[from], 1, to)) >= 0 && (got = find_call(row[to], 2, from)) >= 0) {
        Call *source = &row[from]->call[sent], *target = &row[to]->call[got];
        if (source->count != target->count || source->dtype != target->dtype) return 5;
        memcpy(target->target, source->source, source->count * width(source->dtype));
        drop_call(row[from], sent);
        drop_call(row[to], find_call(row[to], 2, from));
      }
  return 0;
}

static int settle(void) {
  for (int i = 0; i < 64; i++) {
    Comm *first = comms[i], *row[RANKS];
    if (!first || first->rank || !is_complete(first)) continue;
    for (int rank = 0; rank < first->size; rank++) row[rank] = find(&first->id, rank);
    while (!is_stuck) {
      int ready = 1, status = settle_pairs(row, first->size);
      if (status) return status;
      for (int rank = 0; rank < first->size; rank++) ready &= row[rank]->calls > 0 && !row[rank]->call[0].kind;
      if (!ready) break;
      for (int rank = 1; rank < first->size; rank++)
        if (!same(&row[0]->call[0], &row[rank]->call[0])) return 5;
      carry_out(row, first->size);
      for (int rank = 0; rank < first->size; rank++) drop_call(row[rank], 0);
    }
  }
  return 0;
}

static int add(Comm *comm, Call call) {
  int status = enter();
  if (status) return status;
  if (!comm || call.dtype < 0 || call.dtype > 9 || comm->calls == CALLS) return 4;
  if (!(call.source || call.kind == 2) || !(call.target || call.kind == 1)) return 4;
  comm->call[comm->calls++] = call;
  return depth ? 0 : settle();
}

int ncclGetVersion(int *version) { *version = fake_version; return 0; }
int ncclGetUniqueId(Id *id) { memset(id, 0, sizeof *id); *(int *)id->internal = ++next_id; return enter(); }
const char *ncclGetErrorString(int status) { return status == 7 ? "in progress" : status == 6 ? "the other side is gone" : "failed"; }
const char *ncclGetLastError(Comm *comm) { (void)comm; return "as it was told"; }
int ncclGroupStart(void) { depth++; return 0; }
int ncclGroupEnd(void) { int status = enter(); if (--depth) return status; return status ? status : settle(); }

int ncclCommInitRankConfig(Comm **made, int size, Id id, int rank, Config *config) {
  int status = enter();
  if (status) return status;
  if (config->magic != 0xcafebeef || config->size != sizeof(Config) || rank < 0 || rank >= size || size > RANKS) return 4;
  fake_multicast = config->nvls_host_mode == INT_MAX ? 0 : 1;
  fake_blocking = config->blocking;
  for (int i = 0; i < 64; i++)
    if (!comms[i]) {
      comms[i] = *made = calloc(1, sizeof(Comm));
      **made = (Comm){.id = id, .rank = rank, .size = size};
      fake_open++;
      return 7;
    }
  return 3;
}

int ncclCommGetAsyncError(Comm *comm, int *status) {
  *status = async_status ? async_status : (is_stuck || !is_complete(comm)) && !comm->finalized ? 7 : 0;
  return 0;
}
int ncclCommFinalize(Comm *comm) { comm->finalized = 1; return enter(); }
static int drop(Comm *comm) {
  for (int i = 0; i < 64; i++)
    if (comms[i] == comm) { comms[i] = NULL; fake_open--; free(comm); return 0; }
  return 4;
}
int ncclCommDestroy(Comm *comm) { return drop(comm); }
int ncclCommAbort(Comm *comm) { fake_aborted++; return drop(comm); }
int ncclAllReduce(const void *s, void *t, size_t n, int d, int op, Comm *c, void *q) { (void)q; return add(c, (Call){s, t, n, d, op, 0, 0}); }
int ncclSend(const void *s, size_t n, int d, int peer, Comm *c, void *q) { (void)q; return add(c, (Call){s, NULL, n, d, 0, 1, peer}); }
int ncclRecv(void *t, size_t n, int d, int peer, Comm *c, void *q) { (void)q; return add(c, (Call){NULL, t, n, d, 0, 2, peer}); }
