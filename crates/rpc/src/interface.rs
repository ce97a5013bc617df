//! The table an interface is written as, and what is made of it.

/// Writes an interface: `service N "NAME";`, then a row per operation,
/// `KIND OPCODE NAME(ARGUMENTS) -> (RESULTS);`, where KIND is `call`, `fetch`, `store`, `download`
/// or `upload`. A fetch or store operation has an argument named `length`, a download operation no
/// results.
macro_rules! interface {
    (
        service $service:literal $label:literal;
        $(
            $(#[$doc:meta])*
            $kind:ident $opcode:literal $name:ident ($($arg:ident: $arg_ty:ty),* $(,)?)
                -> ($($out:ident: $out_ty:ty),* $(,)?);
        )*
    ) => {
        /// The service this interface is served as.
        pub const SERVICE: ::afar_net::ServiceId = ::afar_net::ServiceId($service);

        /// The interface's name.
        pub const NAME: &str = $label;

        /// Every operation, in the order of the table.
        pub const OPERATIONS: &[&$crate::Operation] = &[$($name::OPERATION),*];

        /// All of the above.
        pub const INTERFACE: &$crate::Interface = &$crate::Interface {
            name: NAME,
            service: SERVICE,
            operations: OPERATIONS,
            canonical_request,
            canonical_reply,
        };

        /// An operation's name, for traces and metrics.
        #[must_use]
        pub fn name(opcode: u32) -> Option<&'static str> {
            OPERATIONS.iter().find(|row| row.opcode == opcode).map(|row| row.name)
        }

        $(
            #[doc = concat!("Operation ", $opcode, ", `", stringify!($name), "`.")]
            pub mod $name {
                use super::*;

                /// The operation's row.
                pub const OPERATION: &$crate::Operation = &$crate::Operation {
                    interface: NAME,
                    opcode: $opcode,
                    name: stringify!($name),
                    label: $crate::operation::label(concat!($label, ".", stringify!($name), "\0")),
                    kind: interface!(@kind $kind),
                    request_max_len: <Request as ::afar_xdr::Decode>::MAX_LEN,
                    reply_max_len: <Reply as ::afar_xdr::Decode>::MAX_LEN,
                    changes: $crate::audit::changes(NAME, stringify!($name)),
                    is_audited: $crate::audit::is_audited(NAME, stringify!($name)),
                };

                /// What the client asks.
                #[derive(Debug, Clone, PartialEq, Eq, ::afar_xdr::Encode, ::afar_xdr::Decode)]
                pub struct Request {
                    $(
                        #[doc = concat!("Argument `", stringify!($arg), "`.")]
                        pub $arg: $arg_ty,
                    )*
                }

                impl Request {
                    pub(crate) fn subject(&self) -> $crate::Subject {
                        interface!(@subject self; $($arg)*)
                    }
                }

                /// What the server answers.
                #[derive(Debug, Clone, PartialEq, Eq, ::afar_xdr::Encode, ::afar_xdr::Decode)]
                pub struct Reply {
                    $(
                        #[doc = concat!("Result `", stringify!($out), "`.")]
                        pub $out: $out_ty,
                    )*
                }
            }
        )*

        /// The operations as functions of a client. One serves any number of tasks; calls beyond
        /// the connection's four channels wait for one.
        #[derive(Debug, Clone)]
        pub struct Client {
            connection: ::afar_net::Connection,
        }

        impl Client {
            /// Calls over this connection, which must be to this interface's service.
            #[must_use]
            pub fn new(connection: ::afar_net::Connection) -> Self {
                Self { connection }
            }

            /// The connection.
            #[must_use]
            pub fn connection(&self) -> &::afar_net::Connection {
                &self.connection
            }

            $(interface! {
                @client $kind [$(#[$doc])*] $name ($($arg: $arg_ty),*)
            })*
        }

        /// The operations as methods of a server. Those not written answer RXGEN_OPCODE, by which
        /// clients know to use an older operation.
        pub trait Service: Send + Sync + 'static {
            /// As [`Handler::BLOCKS`](::afar_net::Handler::BLOCKS).
            const BLOCKS: bool = false;

            /// Where calls are counted, and listed while they are served.
            fn calls(&self) -> Option<&$crate::Calls> {
                None
            }

            /// A call was served, all but the end of its reply.
            fn served(&self, served: &$crate::Served<'_>) {
                if let Some(calls) = self.calls() {
                    calls.count(served);
                }
            }

            $(interface! { @method $kind [$(#[$doc])*] $name })*
        }

        /// Serves a [`Service`]: reads opcode and arguments, calls the method, writes its results.
        #[derive(Debug)]
        pub struct Server<S> {
            service: ::std::sync::Arc<S>,
            identity: $crate::Identity,
        }

        impl<S: Service> Server<S> {
            /// Serves callers that are who their security class says.
            #[must_use]
            pub fn new(service: S) -> Self {
                Self::with_identity(service, $crate::Identity::Anonymous)
            }

            /// Serves one service at several endpoints.
            #[must_use]
            pub fn shared(service: &::std::sync::Arc<S>, identity: $crate::Identity) -> Self {
                Self { service: ::std::sync::Arc::clone(service), identity }
            }

            /// Serves callers that have proved who they are by reaching this endpoint, such as a
            /// socket in a directory only root can enter.
            #[must_use]
            pub fn with_identity(service: S, identity: $crate::Identity) -> Self {
                Self { service: ::std::sync::Arc::new(service), identity }
            }
        }

        impl<S: Service> ::afar_net::Handler for Server<S> {
            const BLOCKS: bool = S::BLOCKS;

            async fn handle(
                &self,
                call: &mut ::afar_net::Call,
            ) -> Result<(), ::afar_net::AbortCode> {
                let caller = $crate::Caller::of(call, &self.identity);
                let opcode = $crate::server::read_opcode(call).await?;
                let began = ::std::time::Instant::now();
                let row = OPERATIONS.iter().position(|row| row.opcode == opcode);
                $crate::server::start_probe(OPERATIONS, row, &caller);
                let result = self.dispatch(&caller, opcode, began, call).await;
                let served = $crate::Served::new(row, &caller, began.elapsed(), result).by(call);
                served.probe(OPERATIONS);
                Service::served(&*self.service, &served);
                result
            }
        }

        impl<S: Service> Server<S> {
            async fn dispatch(
                &self,
                caller: &$crate::Caller,
                opcode: u32,
                began: ::std::time::Instant,
                call: &mut ::afar_net::Call,
            ) -> Result<(), ::afar_net::AbortCode> {
                match opcode {
                    $($opcode => interface!(@serve $kind $name self caller began call),)*
                    // spec: afs-rpc#unknown-operations
                    _ => Err(::afar_net::AbortCode::RXGEN_OPCODE),
                }
            }
        }

        /// Decodes a request that starts with its opcode and encodes it again, without data or
        /// bytes left over. `None` if the opcode is in no row.
        ///
        /// # Errors
        /// When the opcode is not whole, or the arguments cannot be decoded.
        pub fn canonical_request(
            bytes: &[u8],
        ) -> Result<Option<::bytes::Bytes>, ::afar_xdr::DecodeError> {
            let mut input = ::afar_xdr::Decoder::new(bytes);
            let opcode = input.read::<u32>()?;
            match opcode {
                $($opcode => {
                    let request = input.read::<$name::Request>()?;
                    Ok(Some($crate::client::encode_request($name::OPERATION, &request)))
                })*
                _ => Ok(None),
            }
        }

        /// Decodes the results of an operation, without data before them, and encodes them again.
        /// `None` if the opcode is in no row.
        ///
        /// # Errors
        /// When the results cannot be decoded.
        pub fn canonical_reply(
            opcode: u32,
            bytes: &[u8],
        ) -> Result<Option<::bytes::Bytes>, ::afar_xdr::DecodeError> {
            let mut input = ::afar_xdr::Decoder::new(bytes);
            match opcode {
                $($opcode => {
                    Ok(Some(::afar_xdr::to_bytes(&input.read::<$name::Reply>()?)))
                })*
                _ => Ok(None),
            }
        }
    };

    (@kind call) => { $crate::Kind::Call };
    (@kind fetch) => { $crate::Kind::Fetch };
    (@kind store) => { $crate::Kind::Store };
    (@kind download) => { $crate::Kind::Download };
    (@kind upload) => { $crate::Kind::Upload };

    (@client call [$($doc:tt)*] $name:ident ($($arg:ident: $arg_ty:ty),*)) => {
        $($doc)*
        ///
        /// # Errors
        /// When the server refuses, cannot be reached or answers what cannot be decoded.
        pub async fn $name(&self, $($arg: $arg_ty),*) -> Result<$name::Reply, $crate::RpcError> {
            let request = $name::Request { $($arg),* };
            let about = ($name::OPERATION, request.subject());
            $crate::client::call(&self.connection, about, &request).await
        }
    };
    (@client fetch [$($doc:tt)*] $name:ident ($($arg:ident: $arg_ty:ty),*)) => {
        $($doc)*
        ///
        /// Returns when the server has said how much data comes.
        ///
        /// # Errors
        /// When the server refuses, cannot be reached or announces more data than asked for.
        pub async fn $name(
            &self,
            $($arg: $arg_ty),*
        ) -> Result<$crate::Fetch<$name::Reply>, $crate::RpcError> {
            let request = $name::Request { $($arg),* };
            let asked = request.length;
            let about = ($name::OPERATION, request.subject());
            $crate::client::fetch(&self.connection, about, &request, asked).await
        }
    };
    (@client store [$($doc:tt)*] $name:ident ($($arg:ident: $arg_ty:ty),*)) => {
        $($doc)*
        ///
        /// Returns when the arguments are on their way; exactly `length` bytes of data follow.
        ///
        /// # Errors
        /// When the server refuses or cannot be reached.
        pub async fn $name(
            &self,
            $($arg: $arg_ty),*
        ) -> Result<$crate::Store<$name::Reply>, $crate::RpcError> {
            let request = $name::Request { $($arg),* };
            let announced = request.length;
            let about = ($name::OPERATION, request.subject());
            $crate::client::store(&self.connection, about, &request, announced).await
        }
    };
    (@client download [$($doc:tt)*] $name:ident ($($arg:ident: $arg_ty:ty),*)) => {
        $($doc)*
        ///
        /// Returns when the request is on its way; a refusal comes with the first of the data.
        ///
        /// # Errors
        /// When the server cannot be reached.
        pub async fn $name(
            &self,
            $($arg: $arg_ty),*
        ) -> Result<$crate::Download, $crate::RpcError> {
            const {
                let results = $name::OPERATION.reply_max_len;
                assert!(results == 0, "where data ends and results begin would be unknown");
            }
            let request = $name::Request { $($arg),* };
            let about = ($name::OPERATION, request.subject());
            $crate::client::download(&self.connection, about, &request).await
        }
    };
    (@client upload [$($doc:tt)*] $name:ident ($($arg:ident: $arg_ty:ty),*)) => {
        $($doc)*
        ///
        /// Returns when the arguments are on their way; data of any length follows.
        ///
        /// # Errors
        /// When the server refuses or cannot be reached.
        pub async fn $name(
            &self,
            $($arg: $arg_ty),*
        ) -> Result<$crate::Upload<$name::Reply>, $crate::RpcError> {
            let request = $name::Request { $($arg),* };
            let about = ($name::OPERATION, request.subject());
            $crate::client::upload(&self.connection, about, &request).await
        }
    };

    (@method call [$($doc:tt)*] $name:ident) => {
        $($doc)*
        ///
        /// # Errors
        /// With the code to abort the call with.
        fn $name(
            &self,
            caller: &$crate::Caller,
            request: $name::Request,
        ) -> impl Future<Output = Result<$name::Reply, ::afar_net::AbortCode>> + Send {
            let _ = (caller, request);
            ::std::future::ready(Err(::afar_net::AbortCode::RXGEN_OPCODE))
        }
    };
    (@method fetch [$($doc:tt)*] $name:ident) => {
        $($doc)*
        ///
        /// Announces to `data` how many bytes come, sends them, and returns the results.
        ///
        /// # Errors
        /// With the code to abort the call with.
        fn $name(
            &self,
            caller: &$crate::Caller,
            request: $name::Request,
            data: &mut $crate::FetchSink<'_>,
        ) -> impl Future<Output = Result<$name::Reply, ::afar_net::AbortCode>> + Send {
            let _ = (caller, request, data);
            ::std::future::ready(Err(::afar_net::AbortCode::RXGEN_OPCODE))
        }
    };
    (@method store [$($doc:tt)*] $name:ident) => {
        $($doc)*
        ///
        /// Takes the request's `length` bytes from `data` and returns the results.
        ///
        /// # Errors
        /// With the code to abort the call with.
        fn $name(
            &self,
            caller: &$crate::Caller,
            request: $name::Request,
            data: &mut $crate::StoreSource<'_>,
        ) -> impl Future<Output = Result<$name::Reply, ::afar_net::AbortCode>> + Send {
            let _ = (caller, request, data);
            ::std::future::ready(Err(::afar_net::AbortCode::RXGEN_OPCODE))
        }
    };
    (@method download [$($doc:tt)*] $name:ident) => {
        $($doc)*
        ///
        /// Sends the data; it ends when this returns without error.
        ///
        /// # Errors
        /// With the code to abort the call with.
        fn $name(
            &self,
            caller: &$crate::Caller,
            request: $name::Request,
            data: &mut $crate::DownloadSink<'_>,
        ) -> impl Future<Output = Result<$name::Reply, ::afar_net::AbortCode>> + Send {
            let _ = (caller, request, data);
            ::std::future::ready(Err(::afar_net::AbortCode::RXGEN_OPCODE))
        }
    };
    (@method upload [$($doc:tt)*] $name:ident) => {
        $($doc)*
        ///
        /// Takes `data` to its end and returns the results.
        ///
        /// # Errors
        /// With the code to abort the call with.
        fn $name(
            &self,
            caller: &$crate::Caller,
            request: $name::Request,
            data: &mut $crate::UploadSource<'_>,
        ) -> impl Future<Output = Result<$name::Reply, ::afar_net::AbortCode>> + Send {
            let _ = (caller, request, data);
            ::std::future::ready(Err(::afar_net::AbortCode::RXGEN_OPCODE))
        }
    };

    (@serve call $name:ident $self:ident $caller:ident $began:ident $call:ident) => {{
        let (request, arguments) =
            $crate::server::read_request::<$name::Request>($call).await?;
        let served = $crate::Serving::new($name::OPERATION, $caller, request.subject());
        let serving = Service::$name(&*$self.service, $caller, request);
        let result = interface!(@run $self served $began serving);
        let end = $crate::audit::End::new($began, None, &result);
        interface!(@audit $name $caller arguments end);
        $crate::server::send_reply($call, &result?).await
    }};
    (@serve fetch $name:ident $self:ident $caller:ident $began:ident $call:ident) => {{
        let (request, arguments) =
            $crate::server::read_request::<$name::Request>($call).await?;
        let mut data = $crate::server::FetchSink::new($call, request.length)?;
        let served = $crate::Serving::new($name::OPERATION, $caller, request.subject());
        let serving = Service::$name(&*$self.service, $caller, request, &mut data);
        let result = interface!(@run $self served $began serving);
        let end = $crate::audit::End::new($began, Some(data.sent()), &result);
        interface!(@audit $name $caller arguments end);
        data.finish(&result?).await
    }};
    (@serve store $name:ident $self:ident $caller:ident $began:ident $call:ident) => {{
        let (request, arguments, rest) =
            $crate::server::read_arguments::<$name::Request>($call).await?;
        let mut data = $crate::server::StoreSource::new($call, rest, request.length)?;
        let served = $crate::Serving::new($name::OPERATION, $caller, request.subject());
        let serving = Service::$name(&*$self.service, $caller, request, &mut data);
        let result = interface!(@run $self served $began serving);
        let end = $crate::audit::End::new($began, Some(data.received()), &result);
        interface!(@audit $name $caller arguments end);
        $crate::server::send_reply($call, &result?).await
    }};
    (@serve download $name:ident $self:ident $caller:ident $began:ident $call:ident) => {{
        let (request, arguments) =
            $crate::server::read_request::<$name::Request>($call).await?;
        let mut data = $crate::server::DownloadSink::new($call);
        let served = $crate::Serving::new($name::OPERATION, $caller, request.subject());
        let serving = Service::$name(&*$self.service, $caller, request, &mut data);
        let result = interface!(@run $self served $began serving);
        let end = $crate::audit::End::new($began, Some(data.sent()), &result);
        interface!(@audit $name $caller arguments end);
        data.finish(&result?).await
    }};
    (@serve upload $name:ident $self:ident $caller:ident $began:ident $call:ident) => {{
        let (request, arguments, rest) =
            $crate::server::read_arguments::<$name::Request>($call).await?;
        let mut data = $crate::server::UploadSource::new($call, rest);
        let served = $crate::Serving::new($name::OPERATION, $caller, request.subject());
        let serving = Service::$name(&*$self.service, $caller, request, &mut data);
        let result = interface!(@run $self served $began serving);
        let end = $crate::audit::End::new($began, Some(data.received()), &result);
        interface!(@audit $name $caller arguments end);
        $crate::server::send_reply($call, &result?).await
    }};

    // What the arguments are about, by their names.
    (@subject $request:ident;) => { $crate::Subject::None };
    (@subject $request:ident; fid $($rest:ident)*) => { $crate::Subject::Fid($request.fid) };
    (@subject $request:ident; directory $($rest:ident)*) => {
        $crate::Subject::Fid($request.directory)
    };
    (@subject $request:ident; old_directory $($rest:ident)*) => {
        $crate::Subject::Fid($request.old_directory)
    };
    (@subject $request:ident; fids $($rest:ident)*) => {
        $crate::Subject::first_of(&$request.fids)
    };
    (@subject $request:ident; volume $($rest:ident)*) => {
        $crate::Subject::Volume($request.volume)
    };
    (@subject $request:ident; transaction $($rest:ident)*) => {
        $crate::Subject::Transaction($request.transaction)
    };
    (@subject $request:ident; $other:ident $($rest:ident)*) => {
        interface!(@subject $request; $($rest)*)
    };

    // Has the service list the call while it is served.
    (@run $self:ident $served:ident $began:ident $serving:ident) => {{
        let calls = Service::calls(&*$self.service);
        let going = calls.map(|calls| calls.begin($began, $served.clone()));
        $served.scope(going, $serving).await
    }};

    (@audit $name:ident $caller:ident $arguments:ident $end:ident) => {
        $crate::audit::record::<$name::Request, $name::Reply>(
            $name::OPERATION,
            $caller,
            &$arguments,
            &$end,
        )
    };
}
