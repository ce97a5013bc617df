/* Answers requests on standard input with what OpenAFS's librxkad and MIT's libkrb5 make of them. A
 * request is its length in four octets, then one octet that tells its kind, then what do_… reads. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "peer.h"

void give_up(const char *what)
{
    fprintf(stderr, "peer: %s\n", what);
    exit(1);
}

static unsigned char *take(struct message *from, size_t len)
{
    unsigned char *at = from->data + from->at;
    if (len > from->len - from->at)
	give_up("a request is too short");
    from->at += len;
    return at;
}

uint32_t get_int(struct message *from)
{
    uint32_t value;
    memcpy(&value, take(from, 4), 4);
    return ntohl(value);
}

unsigned char *get_octets(struct message *from, size_t *len)
{
    *len = get_int(from);
    return take(from, *len);
}

void get_text(struct message *from, char *text, size_t size)
{
    size_t len;
    unsigned char *octets = get_octets(from, &len);
    if (len >= size)
	give_up("a text is too long");
    memcpy(text, octets, len);
    text[len] = 0;
}

void get_exactly(struct message *from, void *to, size_t size)
{
    size_t len;
    unsigned char *octets = get_octets(from, &len);
    if (len != size)
	give_up("octets of another length");
    memcpy(to, octets, size);
}

static void put(struct message *to, const void *octets, size_t len)
{
    if (len > sizeof to->data - to->len)
	give_up("an answer is too long");
    memcpy(to->data + to->len, octets, len);
    to->len += len;
}

void put_int(struct message *to, uint32_t value)
{
    value = htonl(value);
    put(to, &value, 4);
}

void put_octets(struct message *to, const void *octets, size_t len)
{
    put_int(to, len);
    put(to, octets, len);
}

void put_text(struct message *to, const char *text)
{
    put_octets(to, text, strlen(text));
}

static void (*const kinds[])(struct message *, struct message *) = {
    do_cipher, do_client, do_server, do_respond, do_check_response, do_seal, do_open,
    do_open_ticket, do_make_ticket, do_derive, do_times, do_mit_make, do_mit_open,
};

int main(void)
{
    static struct message in, out;
    static char input[1 << 16], output[1 << 16];
    uint32_t len;
    setvbuf(stdin, input, _IOFBF, sizeof input);
    setvbuf(stdout, output, _IOFBF, sizeof output);
    while (fread(&len, 4, 1, stdin) == 1) {
	len = ntohl(len);
	/* A batch ends with an empty request, which has no answer. */
	if (len == 0) {
	    fflush(stdout);
	    continue;
	}
	if ( len > sizeof in.data || fread(in.data, len, 1, stdin) != 1)
	    give_up("a request has no end");
	if (in.data[0] >= sizeof kinds / sizeof *kinds)
	    give_up("a request of an unknown kind");
	in.len = len;
	in.at = 1;
	out.len = 0;
	kinds[in.data[0]](&in, &out);
	len = htonl(out.len);
	fwrite(&len, 4, 1, stdout);
	fwrite(out.data, out.len, 1, stdout);
    }
    return fflush(stdout) ? 1 : 0;
}
