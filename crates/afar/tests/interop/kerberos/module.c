/* Stands in for OpenAFS's kernel module, for programs of OpenAFS that keep and use tokens: preloaded,
 * it answers what they ask of the module about tokens. AFAR_TEST_TOKENS names the folder that keeps
 * them, a file for each cell with the octets of a ktc_setTokenData as VIOC_SETTOK2 takes it.
 *
 * Programs reach the module by opening its file in /proc and one ioctl, whose argument names the call
 * and its parameters; a "pioctl" is one of these calls. The numbers and forms of data are those of
 * OpenAFS's public headers. Build: cc -shared -fPIC -o module.so module.c
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <afs/param.h>
#include <afs/afs_args.h>
#include <afs/vice.h>
#include <afs/vioc.h>

/* The calls of the module. */
enum { CALL_PIOCTL = 20, CALL_SETPAG = 21 };

/* The longest set of tokens that goes through a pioctl, whose sizes are signed shorts. */
enum { MOST = 16384, NAME_MOST = 64 };

/* A set of tokens in XDR, with a place to read or write. */
struct octets {
    unsigned char data[MOST];
    size_t len, at;
};

/* What an rxkad token says; the layout of the old pioctls' "clear token". */
struct clear {
    int32_t kvno;
    unsigned char key[8];
    int32_t vice_id, begin, end;
};

static void put(struct octets *to, const void *from, size_t len)
{
    if (to->len + len <= MOST)
	memcpy(to->data + to->len, from, len);
    to->len += len;
}

static void put_int(struct octets *to, uint32_t value)
{
    value = htonl(value);
    put(to, &value, 4);
}

static void put_opaque(struct octets *to, const void *from, uint32_t len)
{
    put_int(to, len);
    put(to, from, len);
    put(to, "\0\0\0", -len & 3);
}

/* The next octets; NULL if there are not so many. */
static const unsigned char *take(struct octets *from, size_t len)
{
    const unsigned char *at = from->data + from->at;
    if (from->at > from->len || len > from->len - from->at)
	return NULL;
    from->at += len;
    return at;
}

static int take_int(struct octets *from, uint32_t *value)
{
    const unsigned char *at = take(from, 4);
    if (!at)
	return -1;
    memcpy(value, at, 4);
    *value = ntohl(*value);
    return 0;
}

static const unsigned char *take_opaque(struct octets *from, uint32_t *len)
{
    const unsigned char *at;
    if (take_int(from, len) || *len > MOST || !(at = take(from, *len)) || !take(from, -*len & 3))
	return NULL;
    return at;
}

/* The path of a cell's file; nothing may lead out of the folder. */
static int path_of(char *path, size_t size, const char *cell)
{
    const char *folder = getenv("AFAR_TEST_TOKENS");
    if (!folder || !*cell || strchr(cell, '/') || *cell == '.')
	return -1;
    return snprintf(path, size, "%s/%s", folder, cell) < (int)size ? 0 : -1;
}

static int store(const char *cell, const struct octets *set)
{
    char path[4096];
    int fd, whole;
    if (set->len > MOST)
	return E2BIG;
    if (path_of(path, sizeof path, cell) || (fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600)) < 0)
	return EIO;
    whole = write(fd, set->data, set->len) == (ssize_t)set->len;
    close(fd);
    return whole ? 0 : EIO;
}

static int load(const char *cell, struct octets *set)
{
    char path[4096];
    ssize_t len;
    int fd;
    if (path_of(path, sizeof path, cell) || (fd = open(path, O_RDONLY)) < 0)
	return EDOM;
    len = read(fd, set->data, MOST);
    close(fd);
    set->len = len < 0 ? 0 : len;
    set->at = 0;
    return len < 0 ? EIO : 0;
}

static int is_cell(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* The name of the n-th cell with tokens. */
static int nth(int32_t n, char *cell)
{
    struct dirent **entries = NULL;
    const char *folder = getenv("AFAR_TEST_TOKENS");
    int count = folder ? scandir(folder, &entries, is_cell, alphasort) : -1;
    int found = n >= 0 && n < count;
    if (found)
	snprintf(cell, NAME_MOST + 1, "%.*s", NAME_MOST, entries[n]->d_name);
    while (count > 0)
	free(entries[--count]);
    free(entries);
    return found ? 0 : EDOM;
}

/* The cell of this machine. */
static int own_cell(char *cell)
{
    FILE *file = fopen("/etc/openafs/ThisCell", "r");
    int found = file && fscanf(file, "%64s", cell) == 1;
    if (file)
	fclose(file);
    return found ? 0 : EDOM;
}

static int answer(struct ViceIoctl *io, const void *data, size_t len)
{
    if (len > (size_t)io->out_size)
	return E2BIG;
    memcpy(io->out, data, len);
    io->out_size = len;
    return 0;
}

static int set_tokens(const struct ViceIoctl *io)
{
    struct octets set = { .len = 0 };
    char cell[NAME_MOST + 1] = "";
    const unsigned char *name;
    uint32_t flags, len;
    put(&set, io->in, io->in_size);
    if (take_int(&set, &flags) || !(name = take_opaque(&set, &len)) || len > NAME_MOST)
	return EINVAL;
    memcpy(cell, name, len);
    return store(cell, &set);
}

static int get_tokens(struct ViceIoctl *io)
{
    struct octets set;
    char cell[NAME_MOST + 1] = "";
    int32_t n;
    int code = 0;
    /* Four octets are a number unless they are a name of three letters. */
    if (io->in_size == 4 && (io->in[3] || strlen(io->in) != 3)) {
	memcpy(&n, io->in, 4);
	code = nth(n, cell);
    } else if (io->in_size > 0)
	snprintf(cell, sizeof cell, "%.*s", io->in_size, io->in);
    else
	code = own_cell(cell);
    if (code || (code = load(cell, &set)))
	return code;
    return answer(io, set.data, set.len);
}

/* The old form: ticket, clear token, a flag, the cell's name, in the machine's order of octets. */
static int set_old(const struct ViceIoctl *io)
{
    struct octets in = { .len = 0 }, set = { .len = 0 }, token = { .len = 0 };
    char cell[NAME_MOST + 1];
    const unsigned char *word, *ticket, *name;
    struct clear clear;
    int32_t len, size, primary;
    put(&in, io->in, io->in_size);
    if (in.len > MOST || !(word = take(&in, 4)))
	return EINVAL;
    memcpy(&len, word, 4);
    if (len < 0 || len > 12000 || !(ticket = take(&in, len)) || !(word = take(&in, 4)))
	return EINVAL;
    memcpy(&size, word, 4);
    if (size != sizeof clear || !(word = take(&in, size)))
	return EINVAL;
    memcpy(&clear, word, sizeof clear);
    if (!(word = take(&in, 4)) || !(name = take(&in, 1)))
	return EINVAL;
    memcpy(&primary, word, 4);
    snprintf(cell, sizeof cell, "%.*s", (int)(in.len - (name - in.data)), name);

    put_int(&token, 2);
    put_int(&token, clear.vice_id);
    put_int(&token, clear.kvno);
    put(&token, clear.key, 8);
    put_int(&token, clear.begin);
    put_int(&token, clear.end);
    put_int(&token, primary & 1);
    put_opaque(&token, ticket, len);
    put_int(&set, 0);
    put_opaque(&set, cell, strlen(cell));
    put_int(&set, 1);
    put_opaque(&set, token.data, token.len);
    return store(cell, &set);
}

static int get_old(struct ViceIoctl *io)
{
    struct octets set, token = { .len = 0 }, out = { .len = 0 };
    char cell[NAME_MOST + 1] = "";
    const unsigned char *bytes, *ticket, *key;
    struct clear clear;
    uint32_t flags, len, count, kind, vice_id, kvno, begin, end, primary;
    int32_t n, size = sizeof clear;
    int code, numbered = io->in_size > 0;
    if (numbered && io->in_size < 4)
	return EINVAL;
    if (numbered)
	memcpy(&n, io->in, 4);
    code = numbered ? nth(n, cell) : own_cell(cell);
    if (code || (code = load(cell, &set)))
	return code;
    if (take_int(&set, &flags) || !take_opaque(&set, &len) || take_int(&set, &count) || count < 1
	|| !(bytes = take_opaque(&set, &len)))
	return EIO;
    put(&token, bytes, len);
    if (take_int(&token, &kind) || kind != 2 || take_int(&token, &vice_id) || take_int(&token, &kvno)
	|| !(key = take(&token, 8)) || take_int(&token, &begin) || take_int(&token, &end)
	|| take_int(&token, &primary) || !(ticket = take_opaque(&token, &len)))
	return ENOTCONN;
    clear = (struct clear) { .kvno = kvno, .vice_id = vice_id, .begin = begin, .end = end };
    memcpy(clear.key, key, 8);
    put(&out, &len, 4);
    put(&out, ticket, len);
    put(&out, &size, 4);
    put(&out, &clear, sizeof clear);
    if (numbered) {
	put(&out, &primary, 4);
	put(&out, cell, strlen(cell) + 1);
    }
    return answer(io, out.data, out.len);
}

static int forget_all(void)
{
    char cell[NAME_MOST + 1], path[4096];
    while (!nth(0, cell))
	if (path_of(path, sizeof path, cell) || unlink(path))
	    return EIO;
    return 0;
}

static int pioctl_of(unsigned command, struct ViceIoctl *io)
{
    char cell[NAME_MOST + 1] = "";
    int code;
    switch (command) {
    case (unsigned)VIOC_SETTOK2:
	return set_tokens(io);
    case (unsigned)VIOC_GETTOK2:
	return get_tokens(io);
    case (unsigned)VIOCSETTOK:
	return set_old(io);
    case (unsigned)VIOCGETTOK:
	return get_old(io);
    case (unsigned)VIOCUNLOG:
    case (unsigned)VIOCUNPAG:
	return forget_all();
    case (unsigned)VIOC_GET_WS_CELL:
	if ((code = own_cell(cell)))
	    return code;
	return answer(io, cell, strlen(cell) + 1);
    default:
	return EINVAL;
    }
}

int ioctl(int fd, unsigned long request, ...)
{
    static int (*real)(int, unsigned long, ...);
    struct afsprocdata *call;
    void *argument;
    va_list more;
    int code;
    va_start(more, request);
    argument = va_arg(more, void *);
    va_end(more);
    if (request != (unsigned long)VIOC_SYSCALL) {
	if (!real)
	    real = dlsym(RTLD_NEXT, "ioctl");
	return real(fd, request, argument);
    }
    call = argument;
    code = call->syscall == CALL_SETPAG ? 0
	: call->syscall == CALL_PIOCTL ? pioctl_of(call->param2, (struct ViceIoctl *)call->param3)
	: ENOSYS;
    if (code) {
	errno = code;
	return -1;
    }
    return 0;
}

/* The module's file cannot be opened where there is no module: any other will do. */
static const char *redirect(const char *path)
{
    return strcmp(path, PROC_SYSCALL_FNAME) ? path : "/dev/null";
}

int open(const char *path, int flags, ...)
{
    static int (*real)(const char *, int, ...);
    va_list more;
    mode_t mode;
    va_start(more, flags);
    mode = va_arg(more, mode_t);
    va_end(more);
    if (!real)
	real = dlsym(RTLD_NEXT, "open");
    return real(redirect(path), flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list more;
    mode_t mode;
    va_start(more, flags);
    mode = va_arg(more, mode_t);
    va_end(more);
    return open(path, flags | O_LARGEFILE, mode);
}
