//! MIT Kerberos's library, loaded when it is first needed: the functions that afar calls, and safe
//! wrappers which own what these give.
#![expect(unsafe_code, reason = "a C library is called")]

use std::ffi::{CStr, CString, c_char, c_uint, c_void};
#[cfg(target_pointer_width = "64")]
use std::mem::offset_of;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::OnceLock;

use bytes::Bytes;
use libloading::Library;
use zeroize::Zeroizing;

use crate::EncryptionKey;

/// The name all of its releases since 2001 have; Heimdal's is another.
pub(super) const LIBRARY: &str = "libkrb5.so.3";
/// Only what the cache has (`KRB5_GC_CACHED`).
const CACHED: i32 = 2;

/// What the library hands out and only it looks into.
type Handle = *mut c_void;
type Code = i32;

#[repr(C)]
struct Data {
    magic: i32,
    length: c_uint,
    data: *mut c_char,
}

#[repr(C)]
struct Keyblock {
    magic: i32,
    etype: i32,
    length: c_uint,
    contents: *mut u8,
}

/// `krb5_creds`
#[repr(C)]
struct Creds {
    magic: i32,
    client: Handle,
    server: Handle,
    key: Keyblock,
    /// Authenticated, start, end, renew till; they count on as unsigned after 2038.
    times: [i32; 4],
    is_skey: c_uint,
    flags: i32,
    addresses: *mut c_void,
    ticket: Data,
    second_ticket: Data,
    authdata: *mut c_void,
}

impl Creds {
    const fn empty() -> Self {
        const DATA: Data = Data {
            magic: 0,
            length: 0,
            data: ptr::null_mut(),
        };
        Self {
            magic: 0,
            client: ptr::null_mut(),
            server: ptr::null_mut(),
            key: Keyblock {
                magic: 0,
                etype: 0,
                length: 0,
                contents: ptr::null_mut(),
            },
            times: [0; 4],
            is_skey: 0,
            flags: 0,
            addresses: ptr::null_mut(),
            ticket: DATA,
            second_ticket: DATA,
            authdata: ptr::null_mut(),
        }
    }
}

macro_rules! functions {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the library, by their names without `krb5_`.
        #[derive(Debug)]
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// Keeps them where they are.
            _library: Library,
        }

        impl Functions {
            fn load() -> Result<Self, libloading::Error> {
                // SAFETY: the library starts threads of nobody and runs no code of others when it
                // is loaded.
                let library = unsafe { Library::new(LIBRARY)? };
                $(
                    // SAFETY: the type is the function's in the library's header, and the function
                    // stays for as long as the library, which is kept beside it.
                    let $name = unsafe {
                        *library.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                            concat!("krb5_", stringify!($name)),
                        )?
                    };
                )*
                Ok(Self { $($name,)* _library: library })
            }
        }
    };
}

functions! {
    init_context(*mut Handle) -> Code;
    free_context(Handle);
    get_error_message(Handle, Code) -> *const c_char;
    free_error_message(Handle, *const c_char);
    cc_default(Handle, *mut Handle) -> Code;
    cc_resolve(Handle, *const c_char, *mut Handle) -> Code;
    cc_close(Handle, Handle) -> Code;
    cc_get_full_name(Handle, Handle, *mut *mut c_char) -> Code;
    cc_get_principal(Handle, Handle, *mut Handle) -> Code;
    cc_initialize(Handle, Handle, Handle) -> Code;
    cc_store_cred(Handle, Handle, *mut Creds) -> Code;
    free_string(Handle, *mut c_char);
    parse_name(Handle, *const c_char, *mut Handle) -> Code;
    unparse_name(Handle, Handle, *mut *mut c_char) -> Code;
    free_unparsed_name(Handle, *mut c_char);
    free_principal(Handle, Handle);
    get_credentials(Handle, i32, Handle, *mut Creds, *mut *mut Creds) -> Code;
    free_creds(Handle, *mut Creds);
    free_cred_contents(Handle, *mut Creds);
    get_host_realm(Handle, *const c_char, *mut *mut *mut c_char) -> Code;
    free_host_realm(Handle, *mut *mut c_char) -> Code;
    get_init_creds_opt_alloc(Handle, *mut Handle) -> Code;
    get_init_creds_opt_free(Handle, Handle);
    get_init_creds_opt_set_renew_life(Handle, i32);
    get_init_creds_password(
        Handle, *mut Creds, Handle, *const c_char, Handle, Handle, i32, *const c_char, Handle
    ) -> Code;
    get_renewed_creds(Handle, *mut Creds, Handle, Handle, *const c_char) -> Code;
}

/// What the library says of a failure.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) code: i32,
    pub(super) message: String,
}

/// The library with settings of its own: `krb5.conf` and the environment of now. For one thread.
#[derive(Debug)]
pub(super) struct Session {
    functions: &'static Functions,
    context: Handle,
}

/// A cache of tickets.
#[derive(Debug)]
pub(super) struct Cache<'a> {
    session: &'a Session,
    raw: Handle,
}

/// A user's or service's name.
#[derive(Debug)]
pub(super) struct Principal<'a> {
    session: &'a Session,
    raw: Handle,
}

/// A ticket that belongs to the library.
pub(super) struct Gained<'a> {
    session: &'a Session,
    raw: Box<Creds>,
}

/// A ticket with its session's key.
pub(super) struct Ticket {
    pub(super) client: String,
    pub(super) key: EncryptionKey,
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) renew_till: u32,
    pub(super) flags: i32,
    pub(super) ticket: Bytes,
}

impl Session {
    /// Loads the library at the first call.
    ///
    /// # Errors
    /// Why it cannot be loaded; why it cannot begin.
    pub(super) fn new() -> Result<Self, Result<Failure, String>> {
        static FUNCTIONS: OnceLock<Result<Functions, String>> = OnceLock::new();
        let functions = FUNCTIONS
            .get_or_init(|| Functions::load().map_err(|error| error.to_string()))
            .as_ref()
            .map_err(|error| Err(error.clone()))?;
        let mut context = ptr::null_mut();
        // SAFETY: the context is written to, and read only if the call went well.
        let code = unsafe { (functions.init_context)(&raw mut context) };
        if code == 0 {
            Ok(Self { functions, context })
        } else {
            let message = format!("cannot use its settings (krb5.conf): code {code}");
            Err(Ok(Failure { code, message }))
        }
    }

    fn check(&self, code: Code) -> Result<(), Failure> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the context lives; the text is read before it is given back.
        let text = unsafe { (self.functions.get_error_message)(self.context, code) };
        let message = copied(text).unwrap_or_else(|| format!("code {code}"));
        if !text.is_null() {
            // SAFETY: the text came from the call before and is not used again.
            unsafe { (self.functions.free_error_message)(self.context, text) };
        }
        Err(Failure { code, message })
    }

    /// The cache of this name; without one, the user's usual cache.
    pub(super) fn cache(&self, name: Option<&CStr>) -> Result<Cache<'_>, Failure> {
        let mut raw = ptr::null_mut();
        let code = match name {
            // SAFETY: the name ends with NUL and is copied; the cache is written to.
            Some(name) => unsafe {
                (self.functions.cc_resolve)(self.context, name.as_ptr(), &raw mut raw)
            },
            // SAFETY: the cache is written to.
            None => unsafe { (self.functions.cc_default)(self.context, &raw mut raw) },
        };
        self.check(code)?;
        Ok(Cache { session: self, raw })
    }

    pub(super) fn parse(&self, name: &CStr) -> Result<Principal<'_>, Failure> {
        let mut raw = ptr::null_mut();
        // SAFETY: the name ends with NUL; the principal is written to.
        let code =
            unsafe { (self.functions.parse_name)(self.context, name.as_ptr(), &raw mut raw) };
        self.check(code)?;
        Ok(Principal { session: self, raw })
    }

    /// The realm that the settings give a host; none if they do not.
    pub(super) fn host_realm(&self, host: &CStr) -> Option<String> {
        let mut realms: *mut *mut c_char = ptr::null_mut();
        // SAFETY: the name ends with NUL; the list is written to.
        let code = unsafe {
            (self.functions.get_host_realm)(self.context, host.as_ptr(), &raw mut realms)
        };
        self.check(code).ok()?;
        if realms.is_null() {
            return None;
        }
        // SAFETY: a list that was given ends with a null pointer, so it has a first element.
        let realm = copied(unsafe { *realms });
        // SAFETY: the list came from the call before and is not used again.
        let _code = unsafe { (self.functions.free_host_realm)(self.context, realms) };
        realm.filter(|realm| !realm.is_empty())
    }

    /// A ticket-granting ticket for a password.
    pub(super) fn password(
        &self,
        client: &Principal<'_>,
        password: &CStr,
        renewable: i32,
    ) -> Result<Gained<'_>, Failure> {
        let mut options = ptr::null_mut();
        // SAFETY: the options are written to.
        let code =
            unsafe { (self.functions.get_init_creds_opt_alloc)(self.context, &raw mut options) };
        self.check(code)?;
        let mut gained = Gained::empty(self);
        // SAFETY: the options were just made; the principal is of this context; the password ends
        // with NUL; without a prompter nobody is asked. The ticket is written to.
        let code = unsafe {
            (self.functions.get_init_creds_opt_set_renew_life)(options, renewable);
            (self.functions.get_init_creds_password)(
                self.context,
                &raw mut *gained.raw,
                client.raw,
                password.as_ptr(),
                ptr::null_mut(),
                ptr::null_mut(),
                0,
                ptr::null(),
                options,
            )
        };
        let checked = self.check(code);
        // SAFETY: the options came from this context and are not used again.
        unsafe { (self.functions.get_init_creds_opt_free)(self.context, options) };
        checked.map(|()| gained)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: what was made with the context borrows the session, so nothing of it is left.
        unsafe { (self.functions.free_context)(self.context) };
    }
}

impl<'a> Cache<'a> {
    /// Kind and place: `FILE:/tmp/krb5cc_0`.
    pub(super) fn name(&self) -> Result<String, Failure> {
        let (functions, context) = (self.session.functions, self.session.context);
        let mut name = ptr::null_mut();
        // SAFETY: the cache is of this context; the name is written to.
        let code = unsafe { (functions.cc_get_full_name)(context, self.raw, &raw mut name) };
        self.session.check(code)?;
        let text = copied(name).unwrap_or_default();
        // SAFETY: the name came from the call before and is not used again.
        unsafe { (functions.free_string)(context, name) };
        Ok(text)
    }

    /// Whose it is.
    pub(super) fn principal(&self) -> Result<Principal<'a>, Failure> {
        let session = self.session;
        let mut raw = ptr::null_mut();
        // SAFETY: the cache is of this context; the principal is written to.
        let code = unsafe {
            (session.functions.cc_get_principal)(session.context, self.raw, &raw mut raw)
        };
        session.check(code)?;
        Ok(Principal { session, raw })
    }

    /// A ticket for a service: from the cache, or from the KDC, for which this waits, unless only the
    /// cache is to be used.
    pub(super) fn ticket(
        &self,
        client: &Principal<'_>,
        server: &Principal<'_>,
        cached: bool,
    ) -> Result<Ticket, Failure> {
        let (functions, context) = (self.session.functions, self.session.context);
        let mut asked = Creds::empty();
        (asked.client, asked.server) = (client.raw, server.raw);
        let mut given: *mut Creds = ptr::null_mut();
        let options = if cached { CACHED } else { 0 };
        // SAFETY: cache and names are of this context and only read; the ticket is written to.
        let code = unsafe {
            (functions.get_credentials)(context, options, self.raw, &raw mut asked, &raw mut given)
        };
        self.session.check(code)?;
        let given = NonNull::new(given).ok_or_else(|| self.session.nothing())?;
        // SAFETY: the call went well, so this is a whole ticket of the library's.
        let ticket = self.session.copy(unsafe { given.as_ref() });
        // SAFETY: the ticket came from the call before and is not used again.
        unsafe { (functions.free_creds)(context, given.as_ptr()) };
        ticket
    }

    /// The ticket-granting ticket, renewed by the KDC.
    pub(super) fn renewed(&self, client: &Principal<'_>) -> Result<Gained<'a>, Failure> {
        let session = self.session;
        let mut gained = Gained::empty(session);
        // SAFETY: cache and name are of this context; the ticket is written to.
        let code = unsafe {
            (session.functions.get_renewed_creds)(
                session.context,
                &raw mut *gained.raw,
                client.raw,
                self.raw,
                ptr::null(),
            )
        };
        session.check(code).map(|()| gained)
    }

    /// Makes this the only ticket in the cache, which is then this user's.
    pub(super) fn replace(
        &self,
        client: &Principal<'_>,
        gained: &mut Gained<'_>,
    ) -> Result<(), Failure> {
        let (functions, context) = (self.session.functions, self.session.context);
        // SAFETY: cache and name are of this context.
        let code = unsafe { (functions.cc_initialize)(context, self.raw, client.raw) };
        self.session.check(code)?;
        // SAFETY: cache and ticket are of this context; the ticket is copied into the cache.
        let code = unsafe { (functions.cc_store_cred)(context, self.raw, &raw mut *gained.raw) };
        self.session.check(code)
    }
}

impl Drop for Cache<'_> {
    fn drop(&mut self) {
        let session = self.session;
        // SAFETY: the cache is of this context and not used again.
        let _code = unsafe { (session.functions.cc_close)(session.context, self.raw) };
    }
}

impl Principal<'_> {
    /// `name/instance@REALM`
    pub(super) fn text(&self) -> Result<String, Failure> {
        self.session.name_of(self.raw)
    }
}

impl Drop for Principal<'_> {
    fn drop(&mut self) {
        let session = self.session;
        // SAFETY: the principal is of this context and not used again.
        unsafe { (session.functions.free_principal)(session.context, self.raw) };
    }
}

impl<'a> Gained<'a> {
    fn empty(session: &'a Session) -> Self {
        let raw = Box::new(Creds::empty());
        Self { session, raw }
    }
}

impl Drop for Gained<'_> {
    fn drop(&mut self) {
        let session = self.session;
        // SAFETY: what is in it came from this context, or there is nothing, which is allowed.
        unsafe { (session.functions.free_cred_contents)(session.context, &raw mut *self.raw) };
    }
}

impl Session {
    fn name_of(&self, principal: Handle) -> Result<String, Failure> {
        let mut name = ptr::null_mut();
        // SAFETY: the principal is of this context; the name is written to.
        let code = unsafe { (self.functions.unparse_name)(self.context, principal, &raw mut name) };
        self.check(code)?;
        let text = copied(name).unwrap_or_default();
        // SAFETY: the name came from the call before and is not used again.
        unsafe { (self.functions.free_unparsed_name)(self.context, name) };
        Ok(text)
    }

    /// A ticket of the library's as our own.
    fn copy(&self, creds: &Creds) -> Result<Ticket, Failure> {
        let key = octets(creds.key.contents, creds.key.length);
        let ticket = octets(creds.ticket.data.cast::<u8>(), creds.ticket.length);
        let [_, start, end, renew_till] = creds.times.map(i32::cast_unsigned);
        let [authenticated, ..] = creds.times.map(i32::cast_unsigned);
        Ok(Ticket {
            client: self.name_of(creds.client)?,
            key: EncryptionKey::new(creds.key.etype, key.to_vec()),
            start: if start == 0 { authenticated } else { start },
            end,
            renew_till,
            flags: creds.flags,
            ticket: Bytes::copy_from_slice(&ticket),
        })
    }

    fn nothing(&self) -> Failure {
        Failure {
            code: 0,
            message: "the library reports success but returns nothing".to_owned(),
        }
    }
}

/// A text of the library's; none for a null pointer.
fn copied(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the library's texts end with NUL, and this one is not given back before it is read.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

/// Bytes of the library's.
fn octets(data: *const u8, length: c_uint) -> Zeroizing<Vec<u8>> {
    let length = usize::try_from(length).unwrap_or(0);
    if data.is_null() || length == 0 {
        return Zeroizing::default();
    }
    // SAFETY: the library says that there are so many bytes, and they are not given back before
    // they are copied.
    Zeroizing::new(unsafe { slice::from_raw_parts(data, length) }.to_vec())
}

/// A text as C has it.
pub(super) fn c_text(text: &str) -> Result<CString, Failure> {
    CString::new(text).map_err(|_| Failure {
        code: 0,
        message: "it contains a NUL byte".to_owned(),
    })
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    // As a C compiler lays them out from the library's header.
    assert!(size_of::<Creds>() == 120);
    assert!(offset_of!(Creds, times) == 48);
    assert!(offset_of!(Creds, ticket) == 80);
};
