/* Tickets as MIT's KDC makes them and MIT's services open them. */
#include <stdlib.h>
#include <string.h>
#include <krb5.h>
#include "peer.h"

/* The library has these for its KDC, but no header that is installed has them. */
krb5_error_code krb5_encrypt_tkt_part(krb5_context, const krb5_keyblock *, krb5_ticket *);
krb5_error_code encode_krb5_ticket(const krb5_ticket *, krb5_data **);

static krb5_context context;

static void need_context(void)
{
    if (!context && krb5_init_context(&context))
	give_up("no context of Kerberos");
}

static krb5_principal get_principal(struct message *in)
{
    char text[1024];
    krb5_principal principal;
    get_text(in, text, sizeof text);
    if (krb5_parse_name(context, text, &principal))
	give_up("a principal that is none");
    return principal;
}

static void get_key(struct message *in, krb5_keyblock *key)
{
    size_t len;
    memset(key, 0, sizeof *key);
    key->enctype = get_int(in);
    key->contents = get_octets(in, &len);
    key->length = len;
}

void do_mit_make(struct message *in, struct message *out)
{
    krb5_enc_tkt_part part;
    krb5_keyblock service, session;
    krb5_ticket ticket;
    krb5_data *octets;
    unsigned kvno;
    need_context();
    memset(&part, 0, sizeof part);
    memset(&ticket, 0, sizeof ticket);
    get_key(in, &service);
    kvno = get_int(in);
    ticket.server = get_principal(in);
    part.client = get_principal(in);
    get_key(in, &session);
    part.session = &session;
    part.flags = get_int(in);
    part.transited.tr_type = 1;
    part.times.authtime = get_int(in);
    part.times.starttime = get_int(in);
    part.times.endtime = get_int(in);
    ticket.enc_part2 = &part;
    if (krb5_encrypt_tkt_part(context, &service, &ticket))
	give_up("MIT does not encrypt a ticket");
    ticket.enc_part.kvno = kvno;
    if (encode_krb5_ticket(&ticket, &octets))
	give_up("MIT does not encode a ticket");
    put_octets(out, octets->data, octets->length);
    krb5_free_data(context, octets);
    krb5_free_principal(context, ticket.server);
    krb5_free_principal(context, part.client);
    free(ticket.enc_part.ciphertext.data);
}

/* A key table in memory with one key. */
static krb5_keytab keytab(krb5_principal server, unsigned kvno, const krb5_keyblock *key)
{
    krb5_keytab table;
    krb5_keytab_entry entry;
    if (krb5_kt_resolve(context, "MEMORY:peer", &table))
	give_up("no key table");
    memset(&entry, 0, sizeof entry);
    entry.principal = server;
    entry.vno = kvno;
    entry.key = *key;
    if (krb5_kt_add_entry(context, table, &entry))
	give_up("a key table takes no key");
    return table;
}

void do_mit_open(struct message *in, struct message *out)
{
    krb5_keyblock key;
    krb5_keytab table;
    krb5_ticket *ticket;
    krb5_data octets;
    krb5_principal server;
    unsigned kvno;
    size_t len;
    char *name;
    int code;
    need_context();
    get_key(in, &key);
    kvno = get_int(in);
    server = get_principal(in);
    octets.data = (char *)get_octets(in, &len);
    octets.length = len;
    code = krb5_decode_ticket(&octets, &ticket);
    if (code) {
	put_int(out, code);
	krb5_free_principal(context, server);
	return;
    }
    table = keytab(server, kvno, &key);
    code = krb5_server_decrypt_ticket_keytab(context, table, ticket);
    put_int(out, code);
    if (!code) {
	krb5_enc_tkt_part *part = ticket->enc_part2;
	if (krb5_unparse_name(context, part->client, &name))
	    give_up("a client without a name");
	put_text(out, name);
	krb5_free_unparsed_name(context, name);
	put_int(out, part->session->enctype);
	put_octets(out, part->session->contents, part->session->length);
	put_int(out, part->times.starttime ? part->times.starttime : part->times.authtime);
	put_int(out, part->times.endtime);
    }
    /* A table in memory goes with its last handle. */
    krb5_kt_close(context, table);
    krb5_free_ticket(context, ticket);
    krb5_free_principal(context, server);
}
