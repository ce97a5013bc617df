/* Lets Debian's afsio use Kerberos tickets: preloaded, it gives the program MIT's Kerberos.
 *
 * afsio was compiled with MIT's headers and linked with Heimdal's library, which lays credentials out
 * otherwise; so it never finds a ticket, and goes on as nobody without a word. It also takes the ticket's
 * session key as a DES key, which no KDC gives any more. Here its calls go to MIT's library, by their names,
 * and the key it is given is the one that rxkad derives from the session key.
 *
 * Build: cc -shared -fPIC -o afsio.so afsio.c /usr/lib/libafsrpc_pic.a -l:libhcrypto.so.5 -l:libroken.so.19
 *	 with a version script that shows nothing but krb5_*
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <krb5.h>
#include <rx/rx.h>
#include <rx/rxkad.h>

static void *mit(const char *name)
{
    static void *library;
    void *found = NULL;
    if (!library)
	library = dlopen("libkrb5.so.3", RTLD_NOW | RTLD_LOCAL);
    if (library)
	found = dlsym(library, name);
    if (!found) {
	fprintf(stderr, "afsio.so: %s\n", dlerror());
	exit(1);
    }
    return found;
}

/* A function that does nothing but call MIT's of the same name and type. */
#define SAME(result, name, parameters, arguments) \
    result name parameters { __typeof__(&name) real = mit(#name); return real arguments; }

SAME(krb5_error_code, krb5_init_context, (krb5_context *c), (c))
SAME(void, krb5_free_context, (krb5_context c), (c))
SAME(krb5_error_code, krb5_cc_default, (krb5_context c, krb5_ccache *cache), (c, cache))
SAME(krb5_error_code, krb5_cc_close, (krb5_context c, krb5_ccache cache), (c, cache))
SAME(krb5_error_code, krb5_cc_get_principal, (krb5_context c, krb5_ccache cache, krb5_principal *p),
     (c, cache, p))
SAME(krb5_error_code, krb5_get_host_realm, (krb5_context c, const char *host, char ***realms),
     (c, host, realms))
SAME(krb5_error_code, krb5_free_host_realm, (krb5_context c, char *const *realms), (c, realms))
SAME(krb5_error_code, krb5_set_default_realm, (krb5_context c, const char *realm), (c, realm))
SAME(void, krb5_free_principal, (krb5_context c, krb5_principal p), (c, p))
SAME(void, krb5_free_cred_contents, (krb5_context c, krb5_creds *creds), (c, creds))
SAME(void, krb5_free_creds, (krb5_context c, krb5_creds *creds), (c, creds))

krb5_error_code krb5_build_principal(krb5_context c, krb5_principal *p, unsigned int len,
				     const char *realm, ...)
{
    __typeof__(&krb5_build_principal_alloc_va) real = mit("krb5_build_principal_alloc_va");
    krb5_error_code code;
    va_list more;
    va_start(more, realm);
    code = real(c, p, len, realm, more);
    va_end(more);
    return code;
}

krb5_error_code krb5_get_credentials(krb5_context c, krb5_flags options, krb5_ccache cache,
				     krb5_creds *in, krb5_creds **out)
{
    __typeof__(&krb5_get_credentials) real = mit("krb5_get_credentials");
    struct ktc_encryptionKey key;
    krb5_error_code code;
    /* It asks for a DES key. */
    in->keyblock.enctype = 0;
    code = real(c, options, cache, in, out);
    if (!code)
	code = tkt_DeriveDesKey((*out)->keyblock.enctype, (*out)->keyblock.contents,
				(*out)->keyblock.length, &key);
    if (!code)
	memcpy((*out)->keyblock.contents, &key, sizeof key);
    return code;
}
