//! What the network does: packet sizes, NAT, loss, reordering, windows, capacity.

use super::diagnosis::{Cause, Diagnosis};
use super::words::{PerSecond, Percent, Time, Times};
use crate::measured::{Measured, OLD_PAYLOAD};

/// Packets that an OpenAFS server has on their way in one call.
// spec: rx#windows
const OLD_WINDOW: f64 = 32.0;
/// Bytes of an IP packet with the largest Rx packet that OpenAFS sends: 1,444 and the headers of IPv4 and UDP.
// spec: rx#packet-sizes
const OLD_IP_PACKET: u32 = 1472;
/// Loss and reordering count from this share of packets on, and so many of them: fewer are chance.
const SHARE_LEAST: f64 = 0.004;
const COUNT_LEAST: u32 = 2;
/// The rate of a call by Reno is this many packets in a round trip, over the root of the loss (Mathis et al.,
/// 1997).
const RENO: f64 = 1.22;
/// What is faster than this is bound by nothing that anybody notices.
const FAST: f64 = 50e6;
/// A path that carries less than this is a slow one: 100 Mbit/s.
const SLOW_PATH: f64 = 12.5e6;
/// Several calls that bring this many times as much as one show that one does not fill the path.
const MORE: f64 = 1.5;
/// Nearer servers are not bound by a window, whatever it is.
const NEAR_S: f64 = 0.002;
/// How often clients send something so that a NAT remembers them.
// spec: rx#keepalive
const KEEP_ALIVE_S: u64 = 20;
/// NATs that remember for longer harm nobody.
const NAT_ENOUGH_S: u64 = 60;

pub(super) fn mtu_hole(measured: &Measured) -> Option<Diagnosis> {
    let mtu = measured.mtu?;
    let lost = mtu.lost.filter(|_| mtu.passed < OLD_IP_PACKET)?;
    let packet = mtu.passed.saturating_sub(28);
    let sentence = format!(
        "The path has an MTU hole: IP packets of {} bytes arrive, those of {lost} disappear without an ICMP \
         message, and Rx packets of full size have {OLD_IP_PACKET}.",
        mtu.passed
    );
    let gain = "calls of more than one packet get through; now they hang until they time out, or \
                until afar's peers find a smaller size"
        .to_owned();
    let command = format!(
        "let ICMP type 3 code 4 through on the path, or make packets smaller: fileserver -rxmaxmtu \
         {packet}, and on clients: ip route change default via GATEWAY mtu lock {}",
        mtu.passed
    );
    let found = Diagnosis::new(Cause::MtuHole, sentence, gain, command);
    Some(found.breaks_if(true))
}

pub(super) fn nat(measured: &Measured) -> Option<Diagnosis> {
    let nat = measured.nat?;
    let lost = nat.lost_s.filter(|lost| *lost <= NAT_ENOUGH_S)?;
    let kept = nat.kept_s.unwrap_or(0);
    let sentence = format!(
        "A NAT or firewall on the path forgets clients that are silent: packets of the server came through \
         after {kept} s, and not after {lost} s."
    );
    let is_too_short = kept < KEEP_ALIVE_S;
    let gain = match is_too_short {
        true => format!(
            "callbacks reach clients, which send a keep-alive only every {KEEP_ALIVE_S} s; now they miss \
             changes, and servers wait for them"
        ),
        false => format!(
            "callbacks reach clients that send no keep-alive; those that send one every {KEEP_ALIVE_S} s, \
             as afar and OpenAFS do, are safe"
        ),
    };
    let command =
        "on a NAT that runs Linux: sysctl -w net.netfilter.nf_conntrack_udp_timeout=120".to_owned();
    let found = Diagnosis::new(Cause::Nat, sentence, gain, command);
    Some(found.breaks_if(is_too_short))
}

pub(super) fn loss(measured: &Measured) -> Option<Diagnosis> {
    let path = &measured.path;
    // A server that answers nothing is silent, not far away.
    if path.answered == 0 || path.lost() < COUNT_LEAST || path.loss() < SHARE_LEAST {
        return None;
    }
    let lost = format!(
        "The path loses {} of packets ({} of {} there and back)",
        Percent(path.loss()),
        path.lost(),
        path.sent
    );
    let command = format!(
        "find the hop that loses them: mtr --udp --port {} {}",
        measured.address.port(),
        measured.address.ip()
    );
    let resent = measured.server.peer.filter(|peer| peer.resent > 0);
    let resent = resent.map_or_else(String::new, |peer| {
        format!(
            "; the server sent {} of {} packets again",
            peer.resent, peer.sent
        )
    });
    let reno = reno(measured, path.loss()).filter(|_| !measured.server.afar);
    let Some((reno, whole)) = reno else {
        let sentence = format!("{lost}{resent}.");
        let gain =
            "afar's peers keep the path's rate in spite of it; small calls that lose a packet \
                    take a second or less longer, and other clients are much slower"
                .to_owned();
        return Some(Diagnosis::new(Cause::Loss, sentence, gain, command));
    };
    let sentence = format!(
        "{lost}{resent}, which holds a call of this server at {}.",
        PerSecond(reno)
    );
    let gain = format!("without loss a call gets {}", PerSecond(whole));
    Some(Diagnosis::new(Cause::Loss, sentence, gain, command).limits_to(reno))
}

pub(super) fn reordering(measured: &Measured) -> Option<Diagnosis> {
    let path = &measured.path;
    if path.reordered < COUNT_LEAST || path.reordering() < SHARE_LEAST {
        return None;
    }
    let reordered = format!(
        "The path reorders packets: {} of {} answers ({}) came after a later one",
        path.reordered,
        path.answered,
        Percent(path.reordering())
    );
    let command = "on a load balancer or bond of the path, keep a flow on one link: balance by addresses and \
                   ports, not packet by packet"
        .to_owned();
    let reno = reno(measured, path.reordering()).filter(|_| !measured.server.afar);
    let Some((reno, whole)) = reno else {
        let gain = "little between afar's peers, which wait before they take a packet for lost; other clients \
                    and servers send fewer packets needlessly"
            .to_owned();
        let sentence = format!("{reordered}.");
        return Some(Diagnosis::new(Cause::Reordering, sentence, gain, command));
    };
    let sentence = format!(
        "{reordered}, which this server takes for loss; that holds a call at {} or more.",
        PerSecond(reno)
    );
    let gain = format!("in order a call gets up to {}", PerSecond(whole));
    Some(Diagnosis::new(Cause::Reordering, sentence, gain, command).limits_to(reno))
}

/// What a call of an OpenAFS server gets with this loss, if that is less than its window allows, and what it
/// gets without.
fn reno(measured: &Measured, loss: f64) -> Option<(f64, f64)> {
    let rtt = measured.path.rtt_min_s.filter(|rtt| *rtt > 0.0)?;
    // Half of what is lost there and back is lost on the way here.
    let packets = RENO / (loss / 2.0).sqrt();
    let whole = OLD_WINDOW * OLD_PAYLOAD / rtt;
    let lossy = packets * OLD_PAYLOAD / rtt;
    (lossy < whole && lossy < FAST).then_some((lossy, whole))
}

pub(super) fn window(measured: &Measured) -> Option<Diagnosis> {
    let rtt = measured.path.rtt_min_s.filter(|rtt| *rtt >= NEAR_S)?;
    if measured.server.afar || measured.server.version.is_none() {
        return None;
    }
    let most = OLD_WINDOW * OLD_PAYLOAD / rtt;
    if most >= FAST {
        return None;
    }
    let begin = format!(
        "The window binds: a call of this server has at most {OLD_WINDOW} packets on their way, which is {} at a \
         round trip of {}",
        PerSecond(most),
        Time(rtt)
    );
    let command = "afar cp, afar sync and afar mount use as many calls as fill the path; an afar server has no such \
                   window: afar vos move VOLUME …"
        .to_owned();
    let Some(fetch) = &measured.fetch else {
        let sentence = format!("{begin}.");
        let gain =
            "several calls at a time bring as much more, until they fill the path".to_owned();
        let found = Diagnosis::new(Cause::Window, sentence, gain, command);
        return Some(found.limits_to(most));
    };
    let ratio = fetch.several.bytes_per_s / fetch.one.bytes_per_s.max(1.0);
    if ratio < MORE {
        return None;
    }
    let sentence = format!(
        "{begin} (measured: {}, {:.0} packets).",
        PerSecond(fetch.one.bytes_per_s),
        fetch.one.packets_in_flight(rtt)
    );
    let gain = format!(
        "{} calls at a time bring {}, {} as much",
        fetch.several.calls,
        PerSecond(fetch.several.bytes_per_s),
        Times(ratio)
    );
    let found = Diagnosis::new(Cause::Window, sentence, gain, command);
    Some(found.limits_to(most))
}

pub(super) fn path(measured: &Measured) -> Option<Diagnosis> {
    let fetch = measured.fetch.as_ref()?;
    let (one, several) = (fetch.one.bytes_per_s, fetch.several.bytes_per_s);
    if several >= SLOW_PATH || several >= MORE * one || several <= 0.0 {
        return None;
    }
    let queue = match (measured.path.rtt_min_s, fetch.rtt_loaded_s) {
        (Some(idle), Some(loaded)) if loaded > 1.25 * idle + 0.002 => format!(
            ", and the round trip grows from {} to {} meanwhile",
            Time(idle),
            Time(loaded)
        ),
        _ => String::new(),
    };
    let sentence = format!(
        "The path binds: it carries {} ({:.0} Mbit/s), which one call fills as well as {}{queue}.",
        PerSecond(several),
        several * 8e-6,
        fetch.several.calls
    );
    let gain = "only a faster line, or a server that is nearer, gives more".to_owned();
    let command =
        "put a read-only copy of the volume nearby: afar vos addsite SERVER PARTITION VOLUME and \
                   afar vos release VOLUME; or give other traffic priority: ionice -c 3 afar cp …"
            .to_owned();
    let found = Diagnosis::new(Cause::Path, sentence, gain, command);
    Some(found.limits_to(several))
}
