"""The older home of `GlobalDeviceArray`."""

from shardwise.compat.global_device_array import GlobalDeviceArray as GlobalDeviceArray
