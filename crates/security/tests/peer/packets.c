/* OpenAFS's fcrypt and rxkad at work on packets and connections. Of Rx there is only what rxkad asks for:
 * a connection is its numbers, and a packet one piece of memory. */
#include <afs/param.h>
#include <afs/stds.h>
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>
#include <rx/rx.h>
#include <rx/rx_packet.h>
#include <rx/rxkad.h>
#include "peer.h"

struct rx_connection {
    afs_uint32 epoch, cid, header, trailer;
    int is_server;
    void *data;
    struct rx_securityClass *object;
    afs_int32 calls[RX_MAXCALLS];
};

struct rx_call {
    struct rx_connection *connection;
};

/* One connection of each kind at a time. */
static struct rx_connection client = { .is_server = 0 }, server = { .is_server = 1 };

/* The longest packet that rxkad is asked to send; it is compared with a challenge only. */
afs_uint32 rx_MyMaxSendSize = 8588;

struct rx_connection *rx_ConnectionOf(struct rx_call *call) { return call->connection; }
afs_uint32 rx_GetConnectionEpoch(struct rx_connection *c) { return c->epoch; }
afs_uint32 rx_GetConnectionId(struct rx_connection *c) { return c->cid; }
void *rx_GetSecurityData(struct rx_connection *c) { return c->data; }
void rx_SetSecurityData(struct rx_connection *c, void *data) { c->data = data; }
int rx_IsUsingPktCksum(struct rx_connection *c) { (void)c; return 1; }
void rx_SetSecurityHeaderSize(struct rx_connection *c, afs_uint32 size) { c->header = size; }
afs_uint32 rx_GetSecurityHeaderSize(struct rx_connection *c) { return c->header; }
void rx_SetSecurityMaxTrailerSize(struct rx_connection *c, afs_uint32 size) { c->trailer = size; }
int rx_IsServerConn(struct rx_connection *c) { return c->is_server; }
struct rx_securityClass *rx_SecurityObjectOf(const struct rx_connection *c) { return c->object; }
int rx_SecurityClassOf(struct rx_connection *c) { (void)c; return 2; }

void *rxi_Alloc(size_t size) { return calloc(1, size); }
void rxi_Free(void *octets, size_t size) { (void)size; free(octets); }

int rxi_GetCallNumberVector(struct rx_connection *c, afs_int32 *calls)
{
    memcpy(calls, c->calls, sizeof c->calls);
    return 0;
}

int rxi_SetCallNumberVector(struct rx_connection *c, afs_int32 *calls)
{
    memcpy(c->calls, calls, sizeof c->calls);
    return 0;
}

/* Packets have all the room they may need in one piece, so none of these is ever called. */
#define NEVER give_up("rxkad went beyond a packet's first piece")
afs_int32 rx_SlowGetInt32(struct rx_packet *p, size_t at) { (void)p; (void)at; NEVER; }
afs_int32 rx_SlowPutInt32(struct rx_packet *p, size_t at, afs_int32 v) { (void)p; (void)at; (void)v; NEVER; }
afs_int32 rx_SlowReadPacket(struct rx_packet *p, unsigned int at, int n, char *o)
{
    (void)p; (void)at; (void)n; (void)o; NEVER;
}
afs_int32 rx_SlowWritePacket(struct rx_packet *p, int at, int n, char *o)
{
    (void)p; (void)at; (void)n; (void)o; NEVER;
}
int rxi_AllocDataBuf(struct rx_packet *p, int n, int class) { (void)p; (void)n; (void)class; NEVER; }
int rxi_RoundUpPacket(struct rx_packet *p, unsigned int n) { (void)p; (void)n; return 0; }

static struct rx_packet *packet(const void *octets, size_t len, size_t front)
{
    static struct rx_packet packet;
    static char body[1 << 15];
    if (front + len + 8 > sizeof body)
	give_up("a packet is too long");
    memset(&packet, 0, sizeof packet);
    memcpy(body + front, octets, len);
    /* What is behind is padding, whose content nobody promises. */
    memset(body + front + len, 0xa5, 8);
    packet.niovecs = 2;
    packet.wirevec[1].iov_base = body;
    packet.wirevec[1].iov_len = sizeof body;
    packet.length = len;
    return &packet;
}

static void reset(struct rx_connection *c, struct message *in)
{
    if (c->object) {
	rxkad_DestroyConnection(c->object, c);
	rxkad_Close(c->object);
    }
    c->object = NULL;
    c->data = NULL;
    c->header = c->trailer = 0;
    memset(c->calls, 0, sizeof c->calls);
    c->epoch = get_int(in);
    c->cid = get_int(in);
}

static void open_connection(struct rx_connection *c, struct rx_securityClass *object)
{
    if (!object || rxkad_NewConnection(object, c))
	give_up("rxkad takes no connection");
    c->object = object;
}

void do_cipher(struct message *in, struct message *out)
{
    struct ktc_encryptionKey key;
    fc_KeySchedule schedule;
    unsigned char block[8];
    afs_uint32 chain[2];
    size_t len;
    unsigned char *body;
    get_exactly(in, &key, 8);
    body = get_octets(in, &len);
    if (fc_keysched(&key, schedule))
	give_up("no schedule of a key");
    memcpy(block, body, 8);
    fc_ecb_encrypt(block, block, schedule, ENCRYPT);
    put_octets(out, block, 8);
    memcpy(block, body, 8);
    fc_ecb_encrypt(block, block, schedule, DECRYPT);
    put_octets(out, block, 8);
    static unsigned char other[1 << 16];
    memcpy(chain, &key, 8);
    fc_cbc_encrypt(body, other, len, schedule, chain, ENCRYPT);
    put_octets(out, other, len);
    memcpy(chain, &key, 8);
    fc_cbc_encrypt(body, other, len, schedule, chain, DECRYPT);
    put_octets(out, other, len);
}

void do_client(struct message *in, struct message *out)
{
    struct ktc_encryptionKey key;
    size_t len;
    int level, kvno;
    unsigned char *ticket;
    (void)out;
    reset(&client, in);
    level = get_int(in);
    get_exactly(in, &key, 8);
    kvno = get_int(in);
    ticket = get_octets(in, &len);
    open_connection(&client, rxkad_NewClientSecurityObject(level, &key, kvno, len, (char *)ticket));
}

/* The key of the service that the server has. */
static struct {
    int etype, kvno;
    size_t len;
    unsigned char octets[64];
} service;

static int no_des(void *rock, int kvno, struct ktc_encryptionKey *key)
{
    (void)rock; (void)kvno; (void)key;
    return 1;
}

static int by_type(void *rock, int kvno, int etype, void *key, size_t *len)
{
    (void)rock;
    if (kvno != service.kvno || etype != service.etype || *len < service.len)
	return 1;
    memcpy(key, service.octets, service.len);
    *len = service.len;
    return 0;
}

void do_server(struct message *in, struct message *out)
{
    struct rx_packet *challenge = packet("", 0, 0);
    unsigned char *key;
    int level;
    reset(&server, in);
    level = get_int(in);
    service.etype = get_int(in);
    service.kvno = get_int(in);
    key = get_octets(in, &service.len);
    if (service.len > sizeof service.octets)
	give_up("a key is too long");
    memcpy(service.octets, key, service.len);
    open_connection(&server, rxkad_NewKrb5ServerSecurityObject(level, NULL, no_des, by_type, NULL));
    if (rxkad_CreateChallenge(server.object, &server)
	|| rxkad_GetChallenge(server.object, &server, challenge))
	give_up("no challenge");
    put_octets(out, rx_DataOf(challenge), rx_GetDataSize(challenge));
}

void do_respond(struct message *in, struct message *out)
{
    struct rx_packet *p;
    size_t len;
    unsigned char *challenge;
    int i, code;
    for (i = 0; i < RX_MAXCALLS; i++)
	client.calls[i] = get_int(in);
    challenge = get_octets(in, &len);
    p = packet(challenge, len, 0);
    code = rxkad_GetResponse(client.object, &client, p);
    put_int(out, code);
    if (!code)
	put_octets(out, rx_DataOf(p), rx_GetDataSize(p));
}

void do_check_response(struct message *in, struct message *out)
{
    char name[MAXKTCNAMELEN], instance[MAXKTCNAMELEN], cell[MAXKTCREALMLEN];
    size_t len;
    unsigned char *response = get_octets(in, &len);
    rxkad_level level;
    afs_uint32 end;
    afs_int32 kvno;
    int i, code = rxkad_CheckResponse(server.object, &server, packet(response, len, 0));
    put_int(out, code);
    if (code)
	return;
    if (rxkad_GetServerInfo(&server, &level, &end, name, instance, cell, &kvno))
	give_up("no client after a good response");
    put_int(out, level);
    put_int(out, end);
    put_text(out, name);
    put_text(out, instance);
    put_text(out, cell);
    for (i = 0; i < RX_MAXCALLS; i++)
	put_int(out, server.calls[i]);
}

/* The side, and a packet's place in its connection. */
static struct rx_connection *place(struct message *in, struct rx_header *header)
{
    struct rx_connection *c = get_int(in) ? &server : &client;
    memset(header, 0, sizeof *header);
    header->epoch = c->epoch;
    header->cid = get_int(in);
    header->callNumber = get_int(in);
    header->seq = get_int(in);
    return c;
}

void do_seal(struct message *in, struct message *out)
{
    struct rx_header header;
    struct rx_connection *c = place(in, &header);
    struct rx_call call = { c };
    size_t len;
    unsigned char *payload = get_octets(in, &len);
    struct rx_packet *p = packet(payload, len, c->header);
    int code;
    p->header = header;
    code = rxkad_PreparePacket(c->object, &call, p);
    put_int(out, code);
    if (code)
	return;
    put_int(out, rx_GetPacketCksum(p));
    put_octets(out, rx_DataOf(p), rx_GetDataSize(p));
}

void do_open(struct message *in, struct message *out)
{
    struct rx_header header;
    struct rx_connection *c = place(in, &header);
    struct rx_call call = { c };
    size_t len;
    unsigned char *body;
    struct rx_packet *p;
    int code;
    header.spare = get_int(in);
    body = get_octets(in, &len);
    p = packet(body, len, 0);
    p->header = header;
    code = rxkad_CheckPacket(c->object, &call, p);
    put_int(out, code);
    if (!code)
	put_octets(out, (char *)rx_DataOf(p) + c->header, rx_GetDataSize(p));
}
