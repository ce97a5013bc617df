/* What the parts of the peer share: messages, and what each kind of request does. */
#ifndef PEER_H
#define PEER_H

#include <stddef.h>
#include <stdint.h>

/* The octets of a request, read from its front, or of an answer, written at its end: numbers of four
 * octets, and octets with their count in front. */
struct message {
    unsigned char data[1 << 16];
    size_t len, at;
};

uint32_t get_int(struct message *);
/* The octets stay where they are; a zero octet is put behind a copy with get_text. */
unsigned char *get_octets(struct message *, size_t *len);
void get_text(struct message *, char *text, size_t size);
/* A key of a length that is known. */
void get_exactly(struct message *, void *to, size_t len);
void put_int(struct message *, uint32_t);
void put_octets(struct message *, const void *, size_t len);
void put_text(struct message *, const char *);

/* Ends the program with what went wrong: the test sees that the answer does not come. */
void give_up(const char *what) __attribute__((noreturn));

/* packets.c */
void do_cipher(struct message *in, struct message *out);
void do_client(struct message *in, struct message *out);
void do_server(struct message *in, struct message *out);
void do_respond(struct message *in, struct message *out);
void do_check_response(struct message *in, struct message *out);
void do_seal(struct message *in, struct message *out);
void do_open(struct message *in, struct message *out);

/* tickets.c */
void do_open_ticket(struct message *in, struct message *out);
void do_make_ticket(struct message *in, struct message *out);
void do_derive(struct message *in, struct message *out);
void do_times(struct message *in, struct message *out);

/* mit.c */
void do_mit_make(struct message *in, struct message *out);
void do_mit_open(struct message *in, struct message *out);

#endif
