//! The operations of AFSVol, one method each.

use afar_net::{AbortCode, Local};
use afar_oob::Service;
use afar_rpc::{Caller, Calls, DownloadSink, UploadSource, afsvol};
use afar_types::{DiskPartition, PartitionIds};
use afar_xdr::XdrString;

use super::dump::options;
use super::list::volser_status;
use super::{VolumeServer, codes, superuser};

type Answer<T> = Result<T, AbortCode>;

impl afsvol::Service for VolumeServer {
    fn calls(&self) -> Option<&Calls> {
        Some(&self.0.calls)
    }

    async fn create_volume(
        &self,
        caller: &Caller,
        request: afsvol::create_volume::Request,
    ) -> Answer<afsvol::create_volume::Reply> {
        self.0.create_volume(caller, &self.1, request).await
    }

    async fn delete_volume(
        &self,
        caller: &Caller,
        request: afsvol::delete_volume::Request,
    ) -> Answer<afsvol::delete_volume::Reply> {
        self.0.delete_volume(caller, request.transaction).await?;
        Ok(afsvol::delete_volume::Reply {})
    }

    async fn restore(
        &self,
        caller: &Caller,
        request: afsvol::restore::Request,
        data: &mut UploadSource<'_>,
    ) -> Answer<afsvol::restore::Reply> {
        self.0.restore(caller, &request, data).await?;
        Ok(afsvol::restore::Reply {})
    }

    async fn forward(
        &self,
        caller: &Caller,
        request: afsvol::forward::Request,
    ) -> Answer<afsvol::forward::Reply> {
        self.0.forward(caller, request).await?;
        Ok(afsvol::forward::Reply {})
    }

    async fn end_trans(
        &self,
        caller: &Caller,
        request: afsvol::end_trans::Request,
    ) -> Answer<afsvol::end_trans::Reply> {
        superuser(caller)?;
        // Kept until the end, so that nobody else gets the volume meanwhile.
        if let Ok(used) = self.0.transactions.find(request.transaction, "EndTrans") {
            self.0.settle(&used).await;
        }
        self.0.transactions.end(request.transaction)?;
        Ok(afsvol::end_trans::Reply { return_code: 0 })
    }

    async fn clone(
        &self,
        caller: &Caller,
        request: afsvol::clone::Request,
    ) -> Answer<afsvol::clone::Reply> {
        let volume = self.0.clone_volume(caller, request).await?;
        Ok(afsvol::clone::Reply { volume })
    }

    async fn set_flags(
        &self,
        caller: &Caller,
        request: afsvol::set_flags::Request,
    ) -> Answer<afsvol::set_flags::Reply> {
        let set = self.0.set_flags(caller, request.transaction, request.flags);
        set.await?;
        Ok(afsvol::set_flags::Reply {})
    }

    async fn get_flags(
        &self,
        caller: &Caller,
        request: afsvol::get_flags::Request,
    ) -> Answer<afsvol::get_flags::Reply> {
        self.0.may_query(caller)?;
        let used = self.0.transactions.find(request.transaction, "GetFlags")?;
        let flags = used.flags();
        Ok(afsvol::get_flags::Reply { flags })
    }

    async fn trans_create(
        &self,
        caller: &Caller,
        request: afsvol::trans_create::Request,
    ) -> Answer<afsvol::trans_create::Reply> {
        let transaction = self.0.trans_create(caller, &self.1, request).await?;
        Ok(afsvol::trans_create::Reply { transaction })
    }

    async fn dump(
        &self,
        caller: &Caller,
        request: afsvol::dump::Request,
        data: &mut DownloadSink<'_>,
    ) -> Answer<afsvol::dump::Reply> {
        let options = options(request.from_date, false);
        let dumped = self.0.dump(caller, request.transaction, options, data);
        dumped.await?;
        Ok(afsvol::dump::Reply {})
    }

    async fn get_nth_volume(
        &self,
        caller: &Caller,
        _: afsvol::get_nth_volume::Request,
    ) -> Answer<afsvol::get_nth_volume::Reply> {
        self.0.may_query(caller)?;
        Err(codes::NO_OP)
    }

    async fn set_forwarding(
        &self,
        caller: &Caller,
        request: afsvol::set_forwarding::Request,
    ) -> Answer<afsvol::set_forwarding::Reply> {
        let (transaction, site) = (request.transaction, request.new_site);
        self.0.set_forwarding(caller, transaction, site).await?;
        Ok(afsvol::set_forwarding::Reply {})
    }

    async fn get_name(
        &self,
        caller: &Caller,
        request: afsvol::get_name::Request,
    ) -> Answer<afsvol::get_name::Reply> {
        let state = self
            .0
            .status(caller, request.transaction, "GetName")
            .await?;
        let name = XdrString::new(state.name).map_err(|_| codes::E2BIG)?;
        Ok(afsvol::get_name::Reply { name })
    }

    async fn get_status(
        &self,
        caller: &Caller,
        request: afsvol::get_status::Request,
    ) -> Answer<afsvol::get_status::Reply> {
        let state = self.0.status(caller, request.transaction, "GetStatus");
        let status = volser_status(&state.await?);
        Ok(afsvol::get_status::Reply { status })
    }

    async fn signal_restore(
        &self,
        _: &Caller,
        _: afsvol::signal_restore::Request,
    ) -> Answer<afsvol::signal_restore::Reply> {
        Ok(afsvol::signal_restore::Reply {})
    }

    async fn list_partitions(
        &self,
        caller: &Caller,
        _: afsvol::list_partitions::Request,
    ) -> Answer<afsvol::list_partitions::Reply> {
        let numbers = self.0.partition_numbers(caller)?;
        let partitions: PartitionIds = numbers.iter().copied().collect();
        Ok(afsvol::list_partitions::Reply { partitions })
    }

    async fn list_volumes(
        &self,
        caller: &Caller,
        request: afsvol::list_volumes::Request,
    ) -> Answer<afsvol::list_volumes::Reply> {
        let volumes = self
            .0
            .list_volumes(caller, request.partition, request.flags);
        let volumes = volumes.await?;
        Ok(afsvol::list_volumes::Reply { volumes })
    }

    async fn set_ids_types(
        &self,
        caller: &Caller,
        request: afsvol::set_ids_types::Request,
    ) -> Answer<afsvol::set_ids_types::Reply> {
        self.0.set_ids_types(caller, request).await?;
        Ok(afsvol::set_ids_types::Reply {})
    }

    async fn monitor(
        &self,
        caller: &Caller,
        _: afsvol::monitor::Request,
    ) -> Answer<afsvol::monitor::Reply> {
        let transactions = self.0.monitor(caller)?;
        Ok(afsvol::monitor::Reply { transactions })
    }

    async fn partition_info(
        &self,
        caller: &Caller,
        request: afsvol::partition_info::Request,
    ) -> Answer<afsvol::partition_info::Reply> {
        let partition = self.0.partition_info(caller, request.name.as_bytes());
        let partition = DiskPartition::from(&partition.await?);
        Ok(afsvol::partition_info::Reply { partition })
    }

    async fn re_clone(
        &self,
        caller: &Caller,
        request: afsvol::re_clone::Request,
    ) -> Answer<afsvol::re_clone::Reply> {
        let cloned = self
            .0
            .reclone(caller, request.transaction, request.clone_id);
        cloned.await?;
        Ok(afsvol::re_clone::Reply {})
    }

    async fn list_one_volume(
        &self,
        caller: &Caller,
        request: afsvol::list_one_volume::Request,
    ) -> Answer<afsvol::list_one_volume::Reply> {
        let (partition, volume) = (request.partition, request.volume);
        let volumes = self.0.list_one_volume(caller, partition, volume).await?;
        Ok(afsvol::list_one_volume::Reply { volumes })
    }

    async fn nuke_volume(
        &self,
        caller: &Caller,
        request: afsvol::nuke_volume::Request,
    ) -> Answer<afsvol::nuke_volume::Reply> {
        let (partition, volume) = (request.partition, request.volume);
        self.0.nuke_volume(caller, partition, volume).await?;
        Ok(afsvol::nuke_volume::Reply {})
    }

    async fn set_date(
        &self,
        caller: &Caller,
        request: afsvol::set_date::Request,
    ) -> Answer<afsvol::set_date::Reply> {
        self.0.set_date(caller, request).await?;
        Ok(afsvol::set_date::Reply {})
    }

    async fn x_list_volumes(
        &self,
        caller: &Caller,
        request: afsvol::x_list_volumes::Request,
    ) -> Answer<afsvol::x_list_volumes::Reply> {
        let (partition, flags) = (request.partition, request.flags);
        let volumes = self.0.x_list_volumes(caller, partition, flags).await?;
        Ok(afsvol::x_list_volumes::Reply { volumes })
    }

    async fn x_list_one_volume(
        &self,
        caller: &Caller,
        request: afsvol::x_list_one_volume::Request,
    ) -> Answer<afsvol::x_list_one_volume::Reply> {
        let (partition, volume) = (request.partition, request.volume);
        let volumes = self.0.x_list_one_volume(caller, partition, volume).await?;
        Ok(afsvol::x_list_one_volume::Reply { volumes })
    }

    async fn set_info(
        &self,
        caller: &Caller,
        request: afsvol::set_info::Request,
    ) -> Answer<afsvol::set_info::Reply> {
        self.0.set_info(caller, request).await?;
        Ok(afsvol::set_info::Reply {})
    }

    async fn x_list_partitions(
        &self,
        caller: &Caller,
        _: afsvol::x_list_partitions::Request,
    ) -> Answer<afsvol::x_list_partitions::Reply> {
        let partitions = self.0.partition_numbers(caller)?;
        Ok(afsvol::x_list_partitions::Reply { partitions })
    }

    async fn forward_multiple(
        &self,
        caller: &Caller,
        request: afsvol::forward_multiple::Request,
    ) -> Answer<afsvol::forward_multiple::Reply> {
        let results = self.0.forward_multiple(caller, request).await?;
        Ok(afsvol::forward_multiple::Reply { results })
    }

    async fn convert_ro_to_rw_volume(
        &self,
        caller: &Caller,
        request: afsvol::convert_ro_to_rw_volume::Request,
    ) -> Answer<afsvol::convert_ro_to_rw_volume::Reply> {
        let (partition, volume) = (request.partition, request.volume);
        let converted = self.0.convert_to_read_write(caller, partition, volume);
        converted.await?;
        Ok(afsvol::convert_ro_to_rw_volume::Reply {})
    }

    async fn get_size(
        &self,
        caller: &Caller,
        request: afsvol::get_size::Request,
    ) -> Answer<afsvol::get_size::Reply> {
        let (transaction, from) = (request.transaction, request.from_date);
        let size = self.0.dump_size(caller, transaction, from).await?;
        Ok(afsvol::get_size::Reply { size })
    }

    async fn dump_v2(
        &self,
        caller: &Caller,
        request: afsvol::dump_v2::Request,
        data: &mut DownloadSink<'_>,
    ) -> Answer<afsvol::dump_v2::Reply> {
        let omit = request.flags & afsvol::OMIT_DIRECTORIES != 0;
        let options = options(request.from_date, omit);
        let dumped = self.0.dump(caller, request.transaction, options, data);
        dumped.await?;
        Ok(afsvol::dump_v2::Reply {})
    }

    async fn partition_info64(
        &self,
        caller: &Caller,
        request: afsvol::partition_info64::Request,
    ) -> Answer<afsvol::partition_info64::Reply> {
        let partition = self.0.partition_info(caller, request.name.as_bytes());
        let partition = partition.await?;
        Ok(afsvol::partition_info64::Reply { partition })
    }

    async fn oob_offer(
        &self,
        caller: &Caller,
        request: afsvol::oob_offer::Request,
    ) -> Answer<afsvol::oob_offer::Reply> {
        match &self.0.config.offers {
            // At a local socket there is nothing to gain.
            Some(offers) if !Local::is_given(caller.peer) => {
                superuser(caller)?;
                let offer = offers.offer(Service::Volumes, caller, None, &request.question)?;
                Ok(afsvol::oob_offer::Reply { offer })
            }
            _ => Err(AbortCode::RXGEN_OPCODE),
        }
    }
}
