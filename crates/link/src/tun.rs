//! A TUN device with segmentation and checksum offloads, at one end of a link.

use std::{
    io,
    net::Ipv4Addr,
    os::fd::{AsFd, BorrowedFd},
};

use tun_rs::{DeviceBuilder, SyncDevice};

use crate::{
    error::{Context, Error, Result},
    netlink, netns,
    packet::{PACKET_MAX, VNET_LEN, VnetHeader},
};

/// The name of the device in both namespaces.
pub const DEVICE: &str = "afar0";
/// Packets the device holds while the emulator does not look; more are lost before they are
/// counted here, so it is large.
const TX_QUEUE_LEN: u32 = 20_000;

/// An open TUN device.
pub struct Tun {
    device: SyncDevice,
}

impl Tun {
    /// Makes the device in a namespace, with an address in a /24, and sets it up.
    ///
    /// # Errors
    ///
    /// [`Error::NoTun`], or what the system said.
    pub fn open(namespace: &str, address: Ipv4Addr, mtu: u16) -> Result<Self> {
        if !std::path::Path::new("/dev/net/tun").exists() {
            return Err(Error::NoTun);
        }
        let device = netns::within(namespace, || -> io::Result<SyncDevice> {
            let device = DeviceBuilder::new()
                .name(DEVICE)
                .ipv4(address, 24_u8, None)
                .mtu(mtu)
                // TSO and checksum offload, and USO where the kernel has it.
                .offload(true)
                .tx_queue_len(TX_QUEUE_LEN)
                .build_sync()?;
            device.set_nonblocking(true)?;
            netlink::set_no_queue(device.if_index()?)?;
            Ok(device)
        })?
        .context(format_args!("TUN device {DEVICE} in {namespace}"))?;
        Ok(Self { device })
    }

    /// Reads the next packet into `buffer`, which has room for the largest. `None` if none waits.
    ///
    /// # Errors
    ///
    /// What the system said; after that the device is gone.
    pub fn read<'a>(&self, buffer: &'a mut Buffer) -> io::Result<Option<(VnetHeader, &'a [u8])>> {
        loop {
            match rustix::io::read(&self.device, &mut buffer.0[..]) {
                Ok(len) if len > VNET_LEN => {
                    let (head, data) = buffer.0[..len].split_at(VNET_LEN);
                    let mut bytes = [0; VNET_LEN];
                    bytes.copy_from_slice(head);
                    return Ok(Some((VnetHeader::decode(bytes), data)));
                }
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Hands a packet, given in two parts, to the kernel.
    ///
    /// # Errors
    ///
    /// What the system said; the packet is lost.
    pub fn write(&self, vnet: &VnetHeader, head: &[u8], rest: &[u8]) -> io::Result<()> {
        let vnet = vnet.encode();
        let parts = [&vnet[..], head, rest].map(io::IoSlice::new);
        let written = rustix::io::writev(&self.device, &parts)?;
        if written == VNET_LEN + head.len() + rest.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

impl std::fmt::Debug for Tun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tun").finish_non_exhaustive()
    }
}

/// Room for the largest packet and its header.
#[derive(Debug)]
pub struct Buffer(Box<[u8]>);

impl Default for Buffer {
    fn default() -> Self {
        Self(vec![0; VNET_LEN + PACKET_MAX + 1].into_boxed_slice())
    }
}
