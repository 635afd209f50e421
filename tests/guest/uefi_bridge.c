/* A system that is not Linux: a UEFI application that forwards between the first two network interfaces of its machine,
 * by the drivers of the firmware (OVMF's VirtioNetDxe). It never returns, so it is all that runs in there.
 * scripts/guest-image compiles it.
 *
 * Sources: the UEFI specification 2.10, 24.1 (EFI_SIMPLE_NETWORK_PROTOCOL) and 7 (boot services).
 */

#include <efi.h>
#include <efilib.h>

/* A frame of 1518 bytes without its FCS, and a VLAN tag. */
#define FRAME 1520

static CHAR8 frame[FRAME];

/* Firmware that knows what to boot from has drivers for nothing else yet. */
static void connect_all(void)
{
	EFI_HANDLE *handles = NULL;
	UINTN count = 0, number;

	uefi_call_wrapper(BS->LocateHandleBuffer, 5, AllHandles, NULL, NULL, &count, &handles);
	for (number = 0; number < count; number++)
		uefi_call_wrapper(BS->ConnectController, 4, handles[number], NULL, NULL, TRUE);
}

/* The firmware has its own stack on an interface, which would take the frames. */
static EFI_SIMPLE_NETWORK *take(EFI_HANDLE handle)
{
	EFI_SIMPLE_NETWORK *nic = NULL;
	UINT32 receive = EFI_SIMPLE_NETWORK_RECEIVE_UNICAST | EFI_SIMPLE_NETWORK_RECEIVE_BROADCAST;
	EFI_STATUS status;

	uefi_call_wrapper(BS->DisconnectController, 3, handle, NULL, NULL);
	status = uefi_call_wrapper(BS->HandleProtocol, 3, handle, &gEfiSimpleNetworkProtocolGuid, (VOID **)&nic);
	if (EFI_ERROR(status))
		return NULL;
	uefi_call_wrapper(nic->Start, 1, nic);
	status = uefi_call_wrapper(nic->Initialize, 3, nic, 0, 0);
	if (EFI_ERROR(status)) {
		Print(L"bridge: an interface does not start: %r\n", status);
		return NULL;
	}
	receive |= nic->Mode->ReceiveFilterMask &
		   (EFI_SIMPLE_NETWORK_RECEIVE_PROMISCUOUS | EFI_SIMPLE_NETWORK_RECEIVE_MULTICAST);
	uefi_call_wrapper(nic->ReceiveFilters, 6, nic, receive, 0, FALSE, 0, NULL);
	return nic;
}

/* Returns whether there was a frame. */
static BOOLEAN forward(EFI_SIMPLE_NETWORK *from, EFI_SIMPLE_NETWORK *to)
{
	UINTN size = sizeof(frame);
	VOID *sent = NULL;
	EFI_STATUS status;

	status = uefi_call_wrapper(from->Receive, 7, from, NULL, &size, frame, NULL, NULL, NULL);
	if (EFI_ERROR(status))
		return FALSE;
	do
		status = uefi_call_wrapper(to->Transmit, 7, to, 0, size, frame, NULL, NULL, NULL);
	while (status == EFI_NOT_READY);
	while (!EFI_ERROR(status) && !sent) /* the frame is the driver's until then */
		status = uefi_call_wrapper(to->GetStatus, 3, to, NULL, &sent);
	return TRUE;
}

EFI_STATUS efi_main(EFI_HANDLE image, EFI_SYSTEM_TABLE *table)
{
	EFI_SIMPLE_NETWORK *nics[2];
	EFI_HANDLE *handles = NULL;
	UINTN count = 0, found = 0, number;
	EFI_STATUS status;

	InitializeLib(image, table);
	uefi_call_wrapper(BS->SetWatchdogTimer, 4, 0, 0, 0, NULL); /* it ends what runs for five minutes */
	connect_all();
	status = uefi_call_wrapper(BS->LocateHandleBuffer, 5, ByProtocol, &gEfiSimpleNetworkProtocolGuid, NULL, &count,
				   &handles);
	for (number = 0; !EFI_ERROR(status) && number < count && found < 2; number++) {
		nics[found] = take(handles[number]);
		found += nics[found] != NULL;
	}
	if (found < 2) {
		Print(L"bridge: %d of %d interfaces can be used; expected 2\n", found, count);
		return EFI_NOT_FOUND;
	}
	Print(L"bridge: forwarding by %s\n", table->FirmwareVendor);
	for (;;) {
		BOOLEAN there = forward(nics[0], nics[1]);

		/* What emulates it is not alone on its CPU: it stands still until the firmware's clock ticks. */
		if (!forward(nics[1], nics[0]) && !there)
			__asm__ volatile("hlt");
	}
}
