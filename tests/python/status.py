"""Calls Admin.Status over TLS with grpcio, and prints the name of the status code.

    status.py ADDRESS CA [CERT KEY]
"""

import sys

import grpc
from convoke.v1 import admin_pb2, admin_pb2_grpc


def read(path):
    with open(path, "rb") as file:
        return file.read()


def main():
    address, ca, *own = sys.argv[1:]
    cert, key = own if own else (None, None)
    credentials = grpc.ssl_channel_credentials(read(ca), key and read(key), cert and read(cert))
    with grpc.secure_channel(address, credentials) as channel:
        try:
            admin_pb2_grpc.AdminStub(channel).Status(admin_pb2.StatusRequest(), timeout=60)
            print("OK")
        except grpc.RpcError as error:
            print(error.code().name)


main()
