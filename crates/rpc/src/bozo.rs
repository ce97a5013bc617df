//! BOZO, the basic overseer's interface (service 1, port 7007): what tells how servers and their cell
//! are, and what of the rest a server without an overseer can do.
//!
//! What is listed by a number is asked for from 0 on, until the server answers BZDOM (39429).

use afar_types::{
    BozoKey, BozoKeyInfo, BozoParameters, BozoState, BozoStatus, BozoText, BozoTime, UnixTime,
};

interface! {
    service 1 "BOZO";

    /// Makes a process: of type `cron` at a time, for one. Programs and parameters are six at most.
    call 80 create_bnode(kind: BozoText, instance: BozoText, parameters: BozoParameters) -> ();
    /// Tells what a process is doing, and more about it in words.
    call 83 get_status(instance: BozoText) -> (state: BozoState, description: BozoText);
    /// Tells the name of a process by its number.
    call 84 enumerate_instance(number: i32) -> (instance: BozoText);
    /// Tells the type of a process, such as `simple`, and its history.
    call 85 get_instance_info(instance: BozoText) -> (kind: BozoText, status: BozoStatus);
    /// Tells a command of a process by its number; number 999 is the one that is told of exits.
    call 86 get_instance_parm(instance: BozoText, number: i32) -> (parameter: BozoText);
    /// Makes somebody an administrator.
    call 87 add_s_user(name: BozoText) -> ();
    /// Takes an administrator's rights away.
    call 88 delete_s_user(name: BozoText) -> ();
    /// Tells the name of an administrator by its number.
    call 89 list_s_users(number: i32) -> (name: BozoText);
    /// Tells about a key by its number; the key itself comes as zeros, if need be.
    call 90 list_keys(number: i32) -> (kvno: i32, key: BozoKey, info: BozoKeyInfo);
    /// Tells the name of the cell.
    call 94 get_cell_name() -> (name: BozoText);
    /// Tells the name of a database server by its number, in brackets if it has no vote.
    call 95 get_cell_host(number: u32) -> (name: BozoText);
    /// Stops all processes and starts them again.
    call 100 restart_all() -> ();
    /// Starts the overseer again, and all processes with it.
    call 103 re_bozo() -> ();
    /// Stops a process and starts it again.
    call 104 restart(instance: BozoText) -> ();
    /// Tells when a program was installed, and the two versions before; 0 where there is none.
    call 107 get_dates(path: BozoText)
        -> (new_time: UnixTime, bak_time: UnixTime, old_time: UnixTime);
    /// Runs a command of the shell.
    call 108 exec(command: BozoText) -> ();
    /// Tells when servers are restarted: type 1 all, 2 those with a new program.
    call 111 get_restart_time(kind: i32) -> (time: BozoTime);
    /// Reads a log file. The data is its text without NULs, and one NUL at the end.
    // spec: afs-rpc#the-overseer
    download 112 get_log(name: BozoText) -> ();
    /// Tells the command of a process that failed, or nothing; three strings are spare.
    call 114 get_instance_strings(instance: BozoText)
        -> (error_name: BozoText, spare1: BozoText, spare2: BozoText, spare3: BozoText);
    /// Tells whether commands and paths are refused (1) or not (0).
    call 115 get_restricted_mode() -> (mode: i32);
}
