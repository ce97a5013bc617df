/* A client of file servers on OpenAFS's own Rx, rxkad and RXAFS stubs: reads and writes files by their
 * numbers with the user's Kerberos ticket, at the level that is told.
 *
 *   client SERVER CELL LEVEL status VOLUME.VNODE.UNIQUE
 *   client SERVER CELL LEVEL read   VOLUME.VNODE.UNIQUE       the file, to standard output
 *   client SERVER CELL LEVEL write  VOLUME.VNODE.UNIQUE       the file, from standard input
 *   client SERVER CELL LEVEL create VOLUME.VNODE.UNIQUE NAME  in that directory; prints its numbers
 *   client SERVER CELL LEVEL acl    VOLUME.VNODE.UNIQUE NAME=RIGHTS... of that directory; rights as a number
 *   client SERVER CELL LEVEL time   VOLUME.VNODE.UNIQUE       reads and forgets; prints octets, seconds, CPU
 *
 * LEVEL is clear, auth or crypt with a ticket for afs/CELL from the credentials cache, or none. What a
 * server refuses is printed with its code, and the exit status is 1.
 *
 * Build: cc client.c /usr/lib/libafsrpc.a -l:libhcrypto.so.5 -l:libroken.so.19 -lkrb5 -lpthread
 */
#include <afs/param.h>
#include <afs/stds.h>
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <krb5.h>
#include <rx/rx.h>
#include <rx/rx_null.h>
#include <rx/rxkad.h>
#include <afs/afsint.h>

/* The file server's port and service, and the security indices. */
enum { PORT = 7000, SERVICE = 1, NONE = 0, RXKAD = 2 };

/* Octets that are read of a file at the most; servers refuse what goes beyond their own limit. */
enum { MOST = 0x7fffffff };

static void die(const char *what, int code)
{
    fprintf(stderr, "client: %s: %d\n", what, code);
    /* The threads of Rx end with the process. */
    fflush(NULL);
    _exit(1);
}

/* The class for connections with the user's ticket. */
static struct rx_securityClass *ticket(const char *cell, rxkad_level level)
{
    krb5_context context;
    krb5_ccache cache;
    krb5_creds wanted, *found;
    struct ktc_encryptionKey key;
    char name[600], realm[256];
    char *at;
    int code;
    snprintf(realm, sizeof realm, "%s", cell);
    for (at = realm; *at; at++)
	if (*at >= 'a' && *at <= 'z')
	    *at -= 'a' - 'A';
    snprintf(name, sizeof name, "afs/%s@%s", cell, realm);
    memset(&wanted, 0, sizeof wanted);
    if ((code = krb5_init_context(&context)) || (code = krb5_cc_default(context, &cache))
	|| (code = krb5_cc_get_principal(context, cache, &wanted.client))
	|| (code = krb5_parse_name(context, name, &wanted.server))
	|| (code = krb5_get_credentials(context, 0, cache, &wanted, &found)))
	die("no ticket", code);
    if ((code = tkt_DeriveDesKey(found->keyblock.enctype, found->keyblock.contents,
				 found->keyblock.length, &key)))
	die("no key of the session", code);
    return rxkad_NewClientSecurityObject(level, &key, RXKAD_TKT_TYPE_KERBEROS_V5,
					 found->ticket.length, found->ticket.data);
}

static struct rx_connection *connect_to(const char *server, const char *cell, const char *level)
{
    struct rx_securityClass *class;
    struct in_addr address;
    int index = RXKAD;
    if (!inet_aton(server, &address))
	die("not an address", 0);
    if (!strcmp(level, "none")) {
	class = rxnull_NewClientSecurityObject();
	index = NONE;
    } else
	class = ticket(cell, !strcmp(level, "clear") ? rxkad_clear
		       : !strcmp(level, "auth") ? rxkad_auth : rxkad_crypt);
    return rx_NewConnection(address.s_addr, htons(PORT), SERVICE, class, index);
}

/* What a file server asks of its clients: who they are, and to forget what it has promised. Who does not
 * answer is not served. Nothing is kept here, so all is answered in the same way. */
static afs_int32 answer(struct rx_call *call)
{
    enum { TELL_ME_ABOUT_YOURSELF = 65538, WHO_ARE_YOU = 212, INTERFACES = 1 + 11 + 3 * 32 };
    /* No interface, a UUID of this process, no capabilities. */
    static afs_int32 self[INTERFACES + 1];
    afs_int32 operation;
    int words;
    if (rx_Read(call, (char *)&operation, 4) != 4)
	return RXGEN_SS_UNMARSHAL;
    operation = ntohl(operation);
    if (operation != TELL_ME_ABOUT_YOURSELF && operation != WHO_ARE_YOU)
	return 0;
    self[1] = htonl(getpid());
    self[2] = htonl(time(NULL) & 0xffff);
    words = operation == WHO_ARE_YOU ? INTERFACES : INTERFACES + 1;
    return rx_Write(call, (char *)self, 4 * words) == 4 * words ? 0 : RXGEN_SS_MARSHAL;
}

static void start_rx(void)
{
    static struct rx_securityClass *classes[1];
    if (rx_Init(0))
	die("no Rx", 0);
    classes[NONE] = rxnull_NewServerSecurityObject();
    if (!rx_NewService(0, SERVICE, "callbacks", classes, 1, answer))
	die("no service of callbacks", 0);
    rx_StartServer(0);
}

static AFSFetchStatus status_of(struct rx_connection *connection, AFSFid *fid)
{
    AFSFetchStatus status;
    AFSCallBack promise;
    AFSVolSync sync;
    int code = RXAFS_FetchStatus(connection, fid, &status, &promise, &sync);
    if (code)
	die("FetchStatus", code);
    return status;
}

/* Reads all of a file by one call, to standard output or nowhere. */
static long long read_file(struct rx_connection *connection, AFSFid *fid, int forget)
{
    static char piece[1 << 16];
    struct rx_call *call = rx_NewCall(connection);
    AFSFetchStatus status;
    AFSCallBack promise;
    AFSVolSync sync;
    afs_int32 word[2];
    long long len, left;
    int code = StartRXAFS_FetchData64(call, fid, 0, MOST);
    if (code || rx_Read(call, (char *)word, 8) != 8)
	die("FetchData64", rx_EndCall(call, code));
    len = left = ((long long)ntohl(word[0]) << 32) | ntohl(word[1]);
    while (left > 0) {
	int want = left < (long long)sizeof piece ? left : (int)sizeof piece;
	int got = rx_Read(call, piece, want);
	if (got != want)
	    die("the data of FetchData64", rx_EndCall(call, 0));
	if (!forget)
	    fwrite(piece, 1, got, stdout);
	left -= got;
    }
    code = rx_EndCall(call, EndRXAFS_FetchData64(call, &status, &promise, &sync));
    if (code)
	die("the end of FetchData64", code);
    return len;
}

static void write_file(struct rx_connection *connection, AFSFid *fid)
{
    size_t room = 1 << 20, len = 0, got;
    char *data = malloc(room);
    struct rx_call *call;
    AFSStoreStatus wanted;
    AFSFetchStatus status;
    AFSVolSync sync;
    int code;
    while (data && (got = fread(data + len, 1, room - len, stdin)) > 0)
	if ((len += got) == room)
	    data = realloc(data, room *= 2);
    if (!data)
	die("no memory", 0);
    memset(&wanted, 0, sizeof wanted);
    call = rx_NewCall(connection);
    code = StartRXAFS_StoreData64(call, fid, &wanted, 0, len, len);
    if (!code && (size_t)rx_Write(call, data, len) != len)
	code = rx_Error(call);
    if (!code)
	code = EndRXAFS_StoreData64(call, &status, &sync);
    code = rx_EndCall(call, code);
    if (code)
	die("StoreData64", code);
}

static void create(struct rx_connection *connection, AFSFid *directory, char *name)
{
    AFSStoreStatus wanted;
    AFSFetchStatus status, parent;
    AFSCallBack promise;
    AFSVolSync sync;
    AFSFid fid;
    int code;
    memset(&wanted, 0, sizeof wanted);
    wanted.Mask = AFS_SETMODE;
    wanted.UnixModeBits = 0644;
    code = RXAFS_CreateFile(connection, directory, name, &wanted, &fid, &status, &parent, &promise,
			    &sync);
    if (code)
	die("CreateFile", code);
    printf("%u.%u.%u\n", fid.Volume, fid.Vnode, fid.Unique);
}

static void set_acl(struct rx_connection *connection, AFSFid *directory, int count, char **entries)
{
    char text[4096], *at = text, *end = text + sizeof text;
    AFSOpaque acl;
    AFSFetchStatus status;
    AFSVolSync sync;
    int i, code;
    at += snprintf(at, end - at, "%d\n0\n", count);
    for (i = 0; i < count && at < end; i++) {
	char *rights = strrchr(entries[i], '=');
	if (!rights)
	    die("an entry without rights", 0);
	at += snprintf(at, end - at, "%.*s\t%s\n", (int)(rights - entries[i]), entries[i], rights + 1);
    }
    if (at >= end)
	die("too many entries", 0);
    acl.AFSOpaque_val = text;
    acl.AFSOpaque_len = at - text + 1;
    if ((code = RXAFS_StoreACL(connection, directory, &acl, &status, &sync)))
	die("StoreACL", code);
}

static double seconds(struct timeval time)
{
    return time.tv_sec + time.tv_usec / 1e6;
}

static void time_it(struct rx_connection *connection, AFSFid *fid)
{
    struct timespec before, after;
    struct rusage start, end;
    long long len;
    /* The handshake is not what is timed. */
    status_of(connection, fid);
    getrusage(RUSAGE_SELF, &start);
    clock_gettime(CLOCK_MONOTONIC, &before);
    len = read_file(connection, fid, 1);
    clock_gettime(CLOCK_MONOTONIC, &after);
    getrusage(RUSAGE_SELF, &end);
    printf("{\"bytes\":%lld,\"seconds\":%.6f,\"cpu\":%.6f}\n", len,
	   after.tv_sec - before.tv_sec + (after.tv_nsec - before.tv_nsec) / 1e9,
	   seconds(end.ru_utime) - seconds(start.ru_utime) + seconds(end.ru_stime)
	   - seconds(start.ru_stime));
}

int main(int count, char **words)
{
    struct rx_connection *connection;
    const char *verb = count > 4 ? words[4] : "";
    AFSFid fid;
    if (count < 6 || sscanf(words[5], "%u.%u.%u", &fid.Volume, &fid.Vnode, &fid.Unique) != 3) {
	fprintf(stderr, "usage: client SERVER CELL LEVEL VERB VOLUME.VNODE.UNIQUE [NAME]\n");
	return 2;
    }
    start_rx();
    connection = connect_to(words[1], words[2], words[3]);
    if (!strcmp(verb, "status")) {
	AFSFetchStatus status = status_of(connection, &fid);
	printf("type %u length %u version %u owner %u rights %x anonymous %x\n", status.FileType,
	       status.Length, status.DataVersion, status.Owner, status.CallerAccess,
	       status.AnonymousAccess);
    } else if (!strcmp(verb, "read"))
	read_file(connection, &fid, 0);
    else if (!strcmp(verb, "write"))
	write_file(connection, &fid);
    else if (!strcmp(verb, "create") && count > 6)
	create(connection, &fid, words[6]);
    else if (!strcmp(verb, "acl"))
	set_acl(connection, &fid, count - 6, words + 6);
    else if (!strcmp(verb, "time"))
	time_it(connection, &fid);
    else
	die("no such verb", 0);
    /* A client that leaves without a word makes the next one who changes the file wait for it. */
    RXAFS_GiveUpAllCallBacks(connection);
    fflush(stdout);
    _exit(0);
}
