/* OpenAFS's reading and making of Kerberos 5 tickets. */
#include <afs/param.h>
#include <afs/stds.h>
#include <string.h>
#include <rx/rx.h>
#include <rx/rxkad.h>
#include "peer.h"

struct service {
    int etype, kvno;
    size_t len;
    unsigned char *octets;
};

static int no_des(void *rock, int kvno, struct ktc_encryptionKey *key)
{
    (void)rock; (void)kvno; (void)key;
    return 1;
}

static int by_type(void *rock, int kvno, int etype, void *key, size_t *len)
{
    struct service *service = rock;
    if (kvno != service->kvno || etype != service->etype || *len < service->len)
	return 1;
    memcpy(key, service->octets, service->len);
    *len = service->len;
    return 0;
}

static void get_service(struct message *in, struct service *service)
{
    service->etype = get_int(in);
    service->kvno = get_int(in);
    service->octets = get_octets(in, &service->len);
}

void do_open_ticket(struct message *in, struct message *out)
{
    char name[MAXKTCNAMELEN], instance[MAXKTCNAMELEN], cell[MAXKTCREALMLEN];
    struct ktc_encryptionKey key;
    struct service service;
    int code, kvno = get_int(in);
    afs_int32 host;
    afs_uint32 start, end;
    size_t len;
    unsigned char *ticket;
    get_service(in, &service);
    ticket = get_octets(in, &len);
    code = tkt_DecodeTicket5((char *)ticket, len, no_des, by_type, (char *)&service, kvno, name,
			     instance, cell, &key, &host, &start, &end, 0);
    put_int(out, code);
    if (code)
	return;
    put_text(out, name);
    put_text(out, instance);
    put_text(out, cell);
    put_octets(out, &key, 8);
    put_int(out, start);
    put_int(out, end);
}

void do_make_ticket(struct message *in, struct message *out)
{
    char name[MAXKTCNAMELEN], instance[MAXKTCNAMELEN], cell[MAXKTCREALMLEN], ticket[4096];
    struct ktc_encryptionKey key;
    struct service service;
    int code, len = sizeof ticket;
    afs_uint32 start, end;
    get_service(in, &service);
    get_text(in, name, sizeof name);
    get_text(in, instance, sizeof instance);
    get_text(in, cell, sizeof cell);
    start = get_int(in);
    end = get_int(in);
    get_exactly(in, &key, 8);
    code = tkt_MakeTicket5(ticket, &len, service.etype, &service.kvno, service.octets, service.len,
			   name, instance, cell, start, end, &key, "", "");
    put_int(out, code);
    if (!code)
	put_octets(out, ticket, len);
}

void do_derive(struct message *in, struct message *out)
{
    struct ktc_encryptionKey key;
    int code, etype = get_int(in);
    size_t len;
    unsigned char *octets = get_octets(in, &len);
    code = tkt_DeriveDesKey(etype, octets, len, &key);
    put_int(out, code);
    if (!code)
	put_octets(out, &key, 8);
}

void do_times(struct message *in, struct message *out)
{
    afs_uint32 start = get_int(in), end = get_int(in), now = get_int(in);
    put_int(out, tkt_CheckTimes(start, end, now));
}
