//! The parts of a ticket (RFC 4120, 5.3), read and written.

use zeroize::Zeroizing;

use super::der::{self, Reader, element, field, tag};
use super::time;
use crate::kerberos::{EncryptionKey, Secret};

/// The bit of a ticket's flags that says it does not hold before somebody has validated it.
pub(super) const FLAG_INVALID: u32 = 1 << (31 - 7);
/// The bit that says somebody has looked at the realms the client came through.
pub(super) const FLAG_TRANSITED_CHECKED: u32 = 1 << (31 - 12);

/// A principal's name of the usual sort.
const NAME_PRINCIPAL: i64 = 1;
/// The version of Kerberos.
const VERSION: i64 = 5;

const TICKET: u8 = tag::application(1);
const ENC_TICKET_PART: u8 = tag::application(3);

/// Something encrypted, and with which key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EncryptedData<'a> {
    pub(super) etype: i32,
    pub(super) kvno: u32,
    pub(super) cipher: &'a [u8],
}

impl<'a> EncryptedData<'a> {
    /// Reads it off the front of a ticket; what is behind it is ignored, as peers do.
    pub(super) fn decode(octets: &'a [u8]) -> Option<Self> {
        Self::read(&mut Reader::new(octets))
    }

    /// Reads the encrypted part of a whole ticket; what is behind the ticket is ignored, as peers
    /// do.
    pub(super) fn decode_ticket(octets: &'a [u8]) -> Option<Self> {
        let mut ticket = Reader::new(octets).inside(TICKET)?;
        let mut fields = ticket.inside(tag::SEQUENCE)?;
        let version = der::integer(fields.field(0, tag::INTEGER)?)?;
        // In plain text anybody could have written these two.
        let _realm = fields.field(1, tag::GENERAL_STRING)?;
        let _service = fields.field(2, tag::SEQUENCE)?;
        let mut field = fields.inside(tag::field(3))?;
        let data = Self::read(&mut field)?;
        let whole =
            version == VERSION && ticket.is_empty() && fields.is_empty() && field.is_empty();
        whole.then_some(data)
    }

    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        let mut fields = reader.inside(tag::SEQUENCE)?;
        let etype = der::integer(fields.field(0, tag::INTEGER)?)?;
        // Left out it is 0. KDCs write numbers beyond 31 bits as negative ones or as they are.
        let kvno = fields.optional(1, tag::INTEGER)?;
        let kvno = kvno.map_or(Some(0), der::integer)?;
        let kvno = u32::try_from(kvno).or_else(|_| i32::try_from(kvno).map(i32::cast_unsigned));
        let data = Self {
            etype: etype.try_into().ok()?,
            kvno: kvno.ok()?,
            cipher: fields.field(2, tag::OCTET_STRING)?,
        };
        fields.is_empty().then_some(data)
    }

    pub(super) fn encode(&self) -> Secret {
        element(
            tag::SEQUENCE,
            &[
                &field(0, tag::INTEGER, &der::from_integer(self.etype.into())),
                &field(1, tag::INTEGER, &der::from_integer(self.kvno.into())),
                &field(2, tag::OCTET_STRING, self.cipher),
            ],
        )
    }

    /// A whole ticket with this in it, for a service.
    pub(super) fn encode_ticket(&self, realm: &str, service: &[&str]) -> Secret {
        let fields = element(
            tag::SEQUENCE,
            &[
                &field(0, tag::INTEGER, &der::from_integer(VERSION)),
                &field(1, tag::GENERAL_STRING, realm.as_bytes()),
                &element(tag::field(2), &[&name(service)]),
                &element(tag::field(3), &[&self.encode()]),
            ],
        );
        element(TICKET, &[&fields])
    }
}

/// What only the service can read.
#[derive(Debug)]
pub(super) struct EncTicketPart<'a> {
    pub(super) flags: u32,
    pub(super) key: EncryptionKey,
    pub(super) realm: &'a str,
    pub(super) client: Components<'a>,
    pub(super) authenticated: i64,
    pub(super) start: Option<i64>,
    pub(super) end: i64,
}

/// The one or two components of a client's name. Nobody else has a name in AFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Components<'a> {
    first: &'a str,
    second: Option<&'a str>,
}

impl<'a> Components<'a> {
    pub(super) const fn new(first: &'a str, second: Option<&'a str>) -> Self {
        Self { first, second }
    }

    pub(super) fn to_vec(self) -> Vec<&'a str> {
        [self.first].into_iter().chain(self.second).collect()
    }

    fn read(mut name: Reader<'a>) -> Option<Self> {
        let _sort = der::integer(name.field(0, tag::INTEGER)?)?;
        let mut strings = Reader::new(name.field(1, tag::SEQUENCE)?);
        let first = text(strings.content(tag::GENERAL_STRING)?)?;
        let second = if strings.is_empty() {
            None
        } else {
            Some(text(strings.content(tag::GENERAL_STRING)?)?)
        };
        (strings.is_empty() && name.is_empty()).then_some(Self { first, second })
    }
}

impl<'a> EncTicketPart<'a> {
    /// Reads it; what is behind it is padding.
    pub(super) fn decode(octets: &'a [u8]) -> Option<Self> {
        let mut part = Reader::new(octets).inside(ENC_TICKET_PART)?;
        let mut fields = part.inside(tag::SEQUENCE)?;
        let flags = der::bits(fields.field(0, tag::BIT_STRING)?)?;
        let mut key = Reader::new(fields.field(1, tag::SEQUENCE)?);
        let etype = der::integer(key.field(0, tag::INTEGER)?)?;
        let secret = key.field(1, tag::OCTET_STRING)?;
        let realm = text(fields.field(2, tag::GENERAL_STRING)?)?;
        let client = Components::read(Reader::new(fields.field(3, tag::SEQUENCE)?))?;
        let _transited = fields.field(4, tag::SEQUENCE)?;
        let authenticated = time::parse(fields.field(5, tag::GENERALIZED_TIME)?)?;
        let start = fields.optional(6, tag::GENERALIZED_TIME)?;
        let end = time::parse(fields.field(7, tag::GENERALIZED_TIME)?)?;
        // Renewal, addresses and authorization data mean nothing to AFS.
        fields.skip(8)?;
        fields.skip(9)?;
        fields.skip(10)?;
        let whole = fields.is_empty() && part.is_empty() && key.is_empty();
        let start = match start {
            Some(start) => Some(time::parse(start)?),
            None => None,
        };
        whole.then_some(Self {
            flags,
            key: EncryptionKey::new(etype.try_into().ok()?, secret.to_vec()),
            realm,
            client,
            authenticated,
            start,
            end,
        })
    }
}

/// What goes into a ticket that is made here.
pub(super) struct NewPart<'a> {
    pub(super) flags: u32,
    pub(super) key: &'a EncryptionKey,
    pub(super) realm: &'a str,
    pub(super) client: Components<'a>,
    pub(super) start: u32,
    pub(super) end: u32,
}

impl NewPart<'_> {
    pub(super) fn encode(&self) -> Secret {
        let flags = [&[0], &self.flags.to_be_bytes()[..]].concat();
        let key = Zeroizing::new(
            [
                field(0, tag::INTEGER, &der::from_integer(self.key.etype().into())).as_slice(),
                &field(1, tag::OCTET_STRING, self.key.octets()),
            ]
            .concat(),
        );
        let transited = [
            field(0, tag::INTEGER, &der::from_integer(0)).as_slice(),
            &field(1, tag::OCTET_STRING, &[]),
        ]
        .concat();
        let at = |number, seconds| {
            let text = time::format(seconds);
            field(number, tag::GENERALIZED_TIME, text.as_bytes())
        };
        let fields = element(
            tag::SEQUENCE,
            &[
                &field(0, tag::BIT_STRING, &flags),
                &field(1, tag::SEQUENCE, &key),
                &field(2, tag::GENERAL_STRING, self.realm.as_bytes()),
                &element(tag::field(3), &[&name(&self.client.to_vec())]),
                &field(4, tag::SEQUENCE, &transited),
                &at(5, self.start),
                &at(7, self.end),
            ],
        );
        element(ENC_TICKET_PART, &[&fields])
    }
}

/// A principal's name.
fn name(components: &[&str]) -> Secret {
    let strings: Vec<Secret> = components
        .iter()
        .map(|component| element(tag::GENERAL_STRING, &[component.as_bytes()]))
        .collect();
    let strings: Vec<&[u8]> = strings.iter().map(|string| string.as_slice()).collect();
    element(
        tag::SEQUENCE,
        &[
            &field(0, tag::INTEGER, &der::from_integer(NAME_PRINCIPAL)),
            &element(tag::field(1), &[&element(tag::SEQUENCE, &strings)]),
        ],
    )
}

fn text(content: &[u8]) -> Option<&str> {
    std::str::from_utf8(content).ok()
}
